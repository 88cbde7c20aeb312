// A snapshot as torch.cuda.memory._dump_snapshot writes it, for PyTorch's memory viewer: a pickle of an
// allocator's trace in which each instance is a block at its own address.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/numbers.h"
#include "model/step.h"
#include "report/plans.h"

namespace remat::report {
namespace {

/// The needed part of pickle's protocol 2: dicts, lists, texts, integers, and references.
class Pickle {
 public:
  Pickle() : text_("\x80\x02") {}
  void begin_dict() { text_ += "}("; }
  void end_dict() { text_ += 'u'; }
  void begin_list() { text_ += "]("; }
  void end_list() { text_ += 'e'; }
  void add(std::string_view text) {
    text_ += 'X';
    append(text.size(), 4);
    text_ += text;
  }
  void add(std::int64_t number) {
    text_ += "\x8a\x08";
    append(static_cast<std::uint64_t>(number), 8);
  }
  /// Numbers the last object written, for later references.
  void remember(std::size_t number) {
    text_ += 'r';
    append(number, 4);
  }
  void again(std::size_t number) {
    text_ += 'j';
    append(number, 4);
  }
  std::string finish() { return text_ + '.'; }

 private:
  void append(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(number >> (8 * i) & 0xff);
  }
  std::string text_;
};

/// File and line of "model.py:42".
std::optional<std::pair<std::string_view, std::int64_t>> place_of(std::string_view source) {
  const std::size_t colon = source.rfind(':');
  if (colon == source.npos) return std::nullopt;
  const std::string_view digits = source.substr(colon + 1);
  std::int64_t line = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), line);
  if (digits.empty() || read.ec != std::errc() || read.ptr != digits.data() + digits.size())
    return std::nullopt;
  return std::pair(source.substr(0, colon), line);
}

/// Frames for the viewer's stack traces: the op with module and kind, at its line of the program if known.
class Frames {
 public:
  Frames(const Graph& graph, Pickle& pickle) : graph_(graph), pickle_(pickle), is_known_(graph.num_ops()) {}
  void add(OpId op) {
    if (is_known_[op]) return pickle_.again(at(op));
    is_known_[op] = true;
    std::string name = describe(graph_, op) + " " + std::string(graph_.op_kind[op]);
    const std::string_view module = graph_.op_module[op];
    if (const auto place = place_of(graph_.op_source[op])) {
      if (!module.empty()) name += " in " + std::string(module);
      add(name, place->first, place->second);
    } else {
      add(name, module, op.index());
    }
    pickle_.remember(at(op));
  }
  void add(std::string_view name, std::string_view file, std::int64_t line) {
    pickle_.begin_list();
    pickle_.begin_dict();
    pickle_.add("name");
    pickle_.add(utf8(name));
    pickle_.add("filename");
    pickle_.add(utf8(file));
    pickle_.add("line");
    pickle_.add(line);
    pickle_.end_dict();
    pickle_.end_list();
  }

 private:
  static std::string utf8(std::string_view text) {
    std::string plain(text);
    std::replace_if(
        plain.begin(), plain.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    return plain;
  }
  const Graph& graph_;
  Pickle& pickle_;
  IndexVector<OpId, bool> is_known_;
};

class Snapshot {
 public:
  Snapshot(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan), frames_(graph, pickle_) {}

  std::string write() {
    pickle_.begin_dict();
    for (std::string_view empty : {"segments", "external_annotations"}) {
      pickle_.add(empty);
      pickle_.begin_list();
      pickle_.end_list();
    }
    pickle_.add("device_traces");
    pickle_.begin_list();
    pickle_.begin_list();
    write_events();
    pickle_.end_list();
    pickle_.end_list();
    pickle_.end_dict();
    return pickle_.finish();
  }

 private:
  struct Block {
    std::int64_t address;
    Bytes bytes;
    OpId op;
  };

  void write_events() {
    for (ValueId value : graph_.graph_inputs) {
      const Block block = new_block(graph_.bytes[value], OpId());
      event("alloc", block, [&] { frames_.add(describe(graph_, value), "", value.index()); });
    }
    const auto lives = kinds_of_lives(graph_, plan_);
    const IndexVector<StepId, Bytes> extra = extra_bytes(graph_, plan_);
    IndexVector<StepId, std::vector<Block>> ends(plan_.steps.size() + 1);
    std::size_t next = 0;
    for (StepId step : plan_.steps.ids()) {
      const OpId op = plan_.steps[step];
      for (; next < lives.size() && lives[next].life.first == step; ++next) {
        const InstanceLife& life = lives[next].life;
        ends[life.end].push_back(allocate(graph_.bytes[life.value], graph_.producer[life.value]));
      }
      if (extra[step] > Bytes()) free(allocate(extra[step], op));
      time_ += std::max<std::int64_t>(1, graph_.duration[op].count());
      for (const Block& block : ends[step.next()]) free(block);
    }
  }
  Block new_block(Bytes bytes, OpId op) {
    const Block block{address_, bytes, op};
    address_ += std::max<std::int64_t>(1, bytes.count());
    return block;
  }
  Block allocate(Bytes bytes, OpId op) {
    const Block block = new_block(bytes, op);
    event("alloc", block, [&] { frames_.add(op); });
    return block;
  }
  void free(const Block& block) {
    for (std::string_view action : {"free_requested", "free_completed"}) {
      event(action, block, [&] { frames_.add(block.op); });
    }
  }
  template <class AddFrames>
  void event(std::string_view action, const Block& block, AddFrames add_frames) {
    pickle_.begin_dict();
    pickle_.add("action");
    pickle_.add(action);
    for (const auto& [key, number] : {std::pair<std::string_view, std::int64_t>{"addr", block.address},
                                      {"size", block.bytes.count()},
                                      {"stream", 0},
                                      {"time_us", time_}}) {
      pickle_.add(key);
      pickle_.add(number);
    }
    pickle_.add("frames");
    add_frames();
    pickle_.end_dict();
  }

  const Graph& graph_;
  const Plan& plan_;
  Pickle pickle_;
  Frames frames_;
  std::int64_t address_ = std::int64_t{1} << 32;
  std::int64_t time_ = 0;
};

}  // namespace

std::string memory_viz_text(const Graph& graph, const Shown& shown) {
  return Snapshot(graph, shown.plan).write();
}

}  // namespace remat::report
