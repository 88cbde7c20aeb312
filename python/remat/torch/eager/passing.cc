// Ops that a planned step in eager mode runs as they are, without the way through Python.
//
// A dispatch mode sees every op, and each costs some 20 us in Python. Where an op is the one that the plan
// expects, and neither runs again nor writes to what it is given, the mode would only call it: that is done
// here. Likewise a tensor that autograd saves and that is no result of an op that may run again is only kept,
// with its count of writes. Everything else goes to Python. `ledger.py` is the reference.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/torch_dispatch_mode.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using c10::TensorImpl;
using c10::impl::PyInterpreterVTable;
using c10::impl::TorchDispatchModeTLS;

// The ops of a forward, in their order; those that have to go to the mode are left out.
struct Sequence {
  explicit Sequence(const std::vector<std::optional<std::pair<std::string, std::string>>>& names) {
    for (const auto& each : names) {
      ops.push_back(each ? c10::Dispatcher::singleton().findOp({each->first, each->second}) : std::nullopt);
    }
  }

  std::vector<std::optional<OperatorHandle>> ops;
};

class Filter;
thread_local Filter* active = nullptr;

// Of one step. The mode counts the ops that it sees here, too.
class Filter {
 public:
  Filter(const pybind11::object& mode, std::shared_ptr<Sequence> sequence)
      : mode_(mode.ptr()), sequence_(std::move(sequence)) {}

  void enter() { outer_ = std::exchange(active, this); }
  void leave() { active = std::exchange(outer_, nullptr); }

  void follow(std::shared_ptr<Sequence> sequence) { sequence_ = std::move(sequence); }
  void stop() { sequence_ = nullptr; }

  // Which tensors go to Python when autograd saves them, or asks for them: all, or those that have to.
  void keep(bool saved, bool asked_for) {
    keeps_saved_ = saved;
    keeps_asked_for_ = asked_for;
  }
  bool keeps_asked_for() const { return keeps_asked_for_; }

  // This storage is that of a result of an op that may run again.
  void note_result(std::uintptr_t storage) { results_.insert(storage); }

  // What autograd saves when so many ops have run goes to Python.
  void mark(const std::vector<std::size_t>& positions) { marked_.insert(positions.begin(), positions.end()); }

  // Is it to be kept here, as it is?
  bool keeps(const at::Tensor& tensor) const {
    return keeps_saved_ && tensor.has_storage() && !tensor.is_inference() && !marked_.contains(position_) &&
           !results_.contains(reinterpret_cast<std::uintptr_t>(tensor.storage().unsafeGetStorageImpl()));
  }

  std::size_t take() { return position_++; }
  std::size_t position() const { return position_; }

  // Is this op to be run as it is? It counts as seen then.
  bool passes(const OperatorHandle& op) {
    const std::size_t position = position_;
    if (!sequence_ || position >= sequence_->ops.size() || !sequence_->ops[position] ||
        !(*sequence_->ops[position] == op) || !is_innermost()) {
      return false;
    }
    position_ = position + 1;
    return true;
  }

 private:
  bool is_innermost() const {
    const auto length = TorchDispatchModeTLS::stack_len();
    return length > 0 && TorchDispatchModeTLS::any_modes_set(true) &&
           TorchDispatchModeTLS::get_stack_at(length - 1)->ptr(getPyInterpreter()) == mode_;
  }

  PyObject* mode_;  // holds this
  std::shared_ptr<Sequence> sequence_;
  std::size_t position_ = 0;
  Filter* outer_ = nullptr;
  bool keeps_saved_ = true, keeps_asked_for_ = true;
  std::unordered_set<std::uintptr_t> results_;
  std::unordered_set<std::size_t> marked_;
};

// A tensor that autograd saved, and its count of writes then.
struct Saved {
  explicit Saved(at::Tensor saved) : tensor(std::move(saved)), version(tensor._version()) {}

  at::Tensor tensor;
  int64_t version;
};

// What autograd calls with the tensors that it saves. pack, unpack: those of the mode.
class Hooks {
 public:
  Hooks(std::shared_ptr<Filter> filter, pybind11::object pack, pybind11::object unpack)
      : filter_(std::move(filter)), pack_(std::move(pack)), unpack_(std::move(unpack)) {}

  pybind11::object pack(const pybind11::object& given) const {
    if (!THPVariable_CheckExact(given.ptr())) return pack_(given);
    const at::Tensor& tensor = THPVariable_Unpack(given.ptr());
    if (!filter_->keeps(tensor)) return pack_(given);
    if (!tensor.grad_fn()) return pybind11::cast(Saved(tensor));
    // Else the node of an output would hold itself. No dispatch mode sees it.
    const c10::impl::ExcludeDispatchKeyGuard quiet(
        DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot}));
    return pybind11::cast(Saved(tensor.detach()));
  }

  pybind11::object unpack(const pybind11::object& held) const {
    if (filter_->keeps_asked_for() && pybind11::isinstance<Saved>(held)) {
      const auto& saved = held.cast<const Saved&>();
      if (saved.tensor._version() == saved.version) {
        return pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(saved.tensor));
      }
    }
    return unpack_(held);
  }

 private:
  std::shared_ptr<Filter> filter_;
  pybind11::object pack_, unpack_;
};

// PyTorch's own way into Python, but for the ops that pass.
class Interpreter final : public PyInterpreterVTable {
 public:
  explicit Interpreter(const PyInterpreterVTable& own) : own_(own) {}

  void dispatch(const OperatorHandle& op, torch::jit::Stack* stack) const override {
    if (active == nullptr || !active->passes(op)) {
      own_.dispatch(op, stack);
      return;
    }
    torch::torch_dispatch_mode::StashTorchDispatchModeGuard without_mode;
    op.callBoxed(stack);
  }

  std::string name() const override { return own_.name(); }
  void incref(PyObject* object) const override { own_.incref(object); }
  void decref(PyObject* object) const override { own_.decref(object); }
  bool try_incref(const c10::impl::PyObjectSlot& slot) const override { return own_.try_incref(slot); }
  size_t refcnt(PyObject* object) const override { return own_.refcnt(object); }
  c10::intrusive_ptr<TensorImpl> detach(const TensorImpl* self) const override { return own_.detach(self); }
  void reportErrorCallback(PyObject* callback, DispatchKey key) const override {
    own_.reportErrorCallback(callback, key);
  }
  void python_op_registration_trampoline(const OperatorHandle& op, DispatchKey key, DispatchKeySet keys,
                                         torch::jit::Stack* stack, bool with_keys,
                                         bool with_op) const override {
    own_.python_op_registration_trampoline(op, key, keys, stack, with_keys, with_op);
  }
  void throw_abstract_impl_not_imported_error(std::string op, const char* module,
                                              const char* context) const override {
    own_.throw_abstract_impl_not_imported_error(std::move(op), module, context);
  }
  void python_dispatcher(const OperatorHandle& op, DispatchKeySet keys,
                         torch::jit::Stack* stack) const override {
    own_.python_dispatcher(op, keys, stack);
  }
  bool is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return own_.is_contiguous(self, format);
  }
  c10::SymBool sym_is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return own_.sym_is_contiguous(self, format);
  }
  bool is_strides_like(const TensorImpl* self, at::MemoryFormat format) const override {
    return own_.is_strides_like(self, format);
  }
  bool is_non_overlapping_and_dense(const TensorImpl* self) const override {
    return own_.is_non_overlapping_and_dense(self);
  }
  c10::Device device(const TensorImpl* self) const override { return own_.device(self); }
  int64_t dim(const TensorImpl* self) const override { return own_.dim(self); }
  c10::IntArrayRef strides(const TensorImpl* self) const override { return own_.strides(self); }
  c10::IntArrayRef sizes(const TensorImpl* self) const override { return own_.sizes(self); }
  c10::SymIntArrayRef sym_sizes(const TensorImpl* self) const override { return own_.sym_sizes(self); }
  c10::Layout layout(const TensorImpl* self) const override { return own_.layout(self); }
  int64_t numel(const TensorImpl* self) const override { return own_.numel(self); }
  c10::SymInt sym_numel(const TensorImpl* self) const override { return own_.sym_numel(self); }
  c10::SymIntArrayRef sym_strides(const TensorImpl* self) const override { return own_.sym_strides(self); }
  c10::SymInt sym_storage_offset(const TensorImpl* self) const override {
    return own_.sym_storage_offset(self);
  }
  void trace_gpu_event_creation(c10::DeviceType type, uintptr_t event) const override {
    own_.trace_gpu_event_creation(type, event);
  }
  void trace_gpu_event_deletion(c10::DeviceType type, uintptr_t event) const override {
    own_.trace_gpu_event_deletion(type, event);
  }
  void trace_gpu_event_record(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    own_.trace_gpu_event_record(type, event, stream);
  }
  void trace_gpu_event_wait(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    own_.trace_gpu_event_wait(type, event, stream);
  }
  void trace_gpu_memory_allocation(c10::DeviceType type, uintptr_t memory) const override {
    own_.trace_gpu_memory_allocation(type, memory);
  }
  void trace_gpu_memory_deallocation(c10::DeviceType type, uintptr_t memory) const override {
    own_.trace_gpu_memory_deallocation(type, memory);
  }
  void trace_gpu_stream_creation(c10::DeviceType type, uintptr_t stream) const override {
    own_.trace_gpu_stream_creation(type, stream);
  }
  void trace_gpu_device_synchronization(c10::DeviceType type) const override {
    own_.trace_gpu_device_synchronization(type);
  }
  void trace_gpu_stream_synchronization(c10::DeviceType type, uintptr_t stream) const override {
    own_.trace_gpu_stream_synchronization(type, stream);
  }
  void trace_gpu_event_synchronization(c10::DeviceType type, uintptr_t event) const override {
    own_.trace_gpu_event_synchronization(type, event);
  }
  void reset_backward_hooks(const TensorImpl* self) const override { own_.reset_backward_hooks(self); }

 private:
  const PyInterpreterVTable& own_;
};

}  // namespace

PYBIND11_MODULE(_passing, module) {
  // For as long as the process lives: tensors refer to it.
  static const Interpreter interpreter(*getPyInterpreter()->vtable_);
  getPyInterpreter()->vtable_ = &interpreter;

  pybind11::class_<Sequence, std::shared_ptr<Sequence>>(module, "Sequence")
      .def(pybind11::init<std::vector<std::optional<std::pair<std::string, std::string>>>>());
  pybind11::class_<Filter, std::shared_ptr<Filter>>(module, "Filter")
      .def(pybind11::init<pybind11::object, std::shared_ptr<Sequence>>())
      .def("enter", &Filter::enter)
      .def("leave", &Filter::leave)
      .def("follow", &Filter::follow)
      .def("stop", &Filter::stop)
      .def("take", &Filter::take)
      .def("keep", &Filter::keep)
      .def("note_result", &Filter::note_result)
      .def("mark", &Filter::mark)
      .def_property_readonly("position", &Filter::position);
  pybind11::class_<Saved>(module, "Saved")
      .def_property_readonly(
          "tensor",
          [](const Saved& saved) {
            return pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(saved.tensor));
          })
      .def_readonly("version", &Saved::version);
  pybind11::class_<Hooks>(module, "Hooks")
      .def(pybind11::init<std::shared_ptr<Filter>, pybind11::object, pybind11::object>())
      .def("pack", &Hooks::pack)
      .def("unpack", &Hooks::unpack);
}
