// remat._core.plan_pipeline: cuts of a training step into stages, and what each recomputes.
#include "remat/pipeline.h"

#include "bindings.h"
#include "effort.h"
#include "errors.h"
#include "planner_thread.h"

namespace remat::python {
namespace {

/// `remat.PipelineStage`.
struct BoundStage {
  PipelineStage stage;
  std::vector<std::string> names;
  std::vector<BlockPolicy> policies;
};

/// `remat.PipelineResult`.
struct BoundPipeline {
  PipelineResult result;
  std::vector<BoundStage> stages;
};

BoundPipeline plan_stages(const std::vector<std::pair<Graph*, int>>& graphs, int stages, int microbatches,
                          std::int64_t budget, const std::string& schedule, int chunks,
                          const std::string& executor, bool whole_layers,
                          const std::vector<std::string>& data, int state, const Effort& effort) {
  std::vector<PipelinePart> parts;
  for (const auto& [graph, count] : graphs) parts.push_back({graph, count});
  const PipelineOptions options{stages,        microbatches,
                                Bytes(budget), parse_schedule(schedule),
                                chunks,        parse_pipeline_executor(executor),
                                whole_layers,  state,
                                data};
  BoundPipeline bound;
  PlannerThread thread;
  effort.apply(thread.limits());
  with_fault<GraphFault>([&] {
    thread.run([&] { bound.result = plan_pipeline(parts, options, thread.limits()); }, nb::none());
  });
  if (!bound.result.plan) return bound;
  for (const PipelineStage& stage : bound.result.plan->stages) {
    BoundStage made{stage, {}, policies_of(bound.result, parts, stage)};
    for (const BlockPolicy& policy : made.policies) made.names.push_back(policy.name);
    bound.stages.push_back(std::move(made));
  }
  return bound;
}

/// (name, runs again, [(kind of op, calls whose results are saved)]) for each block.
nb::list policies(const BoundStage& bound) {
  nb::list rows;
  for (const BlockPolicy& policy : bound.policies) {
    nb::dict saved;
    for (const auto& [kind, calls] : policy.saved)
      saved[nb::str(kind.c_str(), kind.size())] = nb::cast(calls);
    rows.append(nb::make_tuple(policy.name, policy.runs_again, saved));
  }
  return rows;
}

template <class Get>
auto of_plan(Get get) {
  return [get](const BoundPipeline& b) -> std::optional<decltype(get(*b.result.plan))> {
    if (!b.result.plan) return std::nullopt;
    return get(*b.result.plan);
  };
}

nb::dict beside(const BoundPipeline& bound) {
  const PipelineResult& r = bound.result;
  nb::dict rows;
  for (const auto& [name, plan] :
       {std::pair("uniform_own", &r.uniform_own), std::pair("uniform_same", &r.uniform_same),
        std::pair("uniform_full", &r.uniform_full)}) {
    rows[name] = *plan ? nb::object(nb::int_((*plan)->duration.count())) : nb::none();
  }
  return rows;
}

void bind_stage(nb::module_& m) {
  nb::class_<BoundStage>(m, "PipelineStage",
                         "The part of a model on one device of a pipeline, or in one of its chunks.")
      .def_prop_ro("device", of(&BoundStage::stage, &PipelineStage::device))
      .def_prop_ro("chunk", of(&BoundStage::stage, &PipelineStage::chunk))
      .def_prop_ro(
          "blocks", [](const BoundStage& b) { return std::pair(b.stage.first, b.stage.last); },
          "The first block, and the one after the last.")
      .def_ro("names", &BoundStage::names, "Modules of the blocks.")
      .def_prop_ro("in_flight", of(&BoundStage::stage, &PipelineStage::in_flight),
                   "Micro-batches in flight at most.")
      .def_prop_ro("held", of(&BoundStage::stage, &PipelineStage::held),
                   "Bytes of parameters, gradients and optimizer state.")
      .def_prop_ro("saved", of(&BoundStage::stage, &PipelineStage::saved),
                   "Bytes that one micro-batch keeps from its forward half to its backward half.")
      .def_prop_ro("peak", of(&BoundStage::stage, &PipelineStage::peak),
                   "Peak of the device in bytes, by the reference simulator.")
      .def_prop_ro("forward", of(&BoundStage::stage, &PipelineStage::forward), "Time of one micro-batch.")
      .def_prop_ro("backward", of(&BoundStage::stage, &PipelineStage::backward),
                   "Time of one micro-batch without recomputation.")
      .def_prop_ro("recomputed", of(&BoundStage::stage, &PipelineStage::recomputed),
                   "Time of the recomputation.")
      .def_prop_ro(
          "policies", policies, nb::sig("def policies(self) -> list[tuple[str, bool, dict[str, list[int]]]]"),
          "For each block its module, whether it recomputes anything, and by kind of op the calls with "
          "saved results.");
}

}  // namespace

void bind_pipeline(nb::module_& m) {
  bind_stage(m);
  nb::class_<BoundPipeline>(m, "PipelineResult", "A partition of a training step into stages.")
      .def_prop_ro("status", of(&BoundPipeline::result, &PipelineResult::status),
                   "\"optimal\": no other cuts and choices make the slowest stage faster; otherwise as in "
                   "PlanResult.")
      .def_prop_ro("stages", of(&BoundPipeline::stages), "By virtual stage; empty without a plan.")
      .def_prop_ro("slowest", of_plan([](const PipelinePlan& p) { return p.slowest; }),
                   "Time of the slowest device for one micro-batch.")
      .def_prop_ro("duration", of_plan([](const PipelinePlan& p) { return p.duration; }),
                   "Duration of the step, without the optimizer.")
      .def_prop_ro("bubble", of_plan([](const PipelinePlan& p) { return p.bubble; }),
                   "Share of the devices' time that they are idle.")
      .def_prop_ro(
          "beside", beside, nb::sig("def beside(self) -> dict[str, int | None]"),
          "Durations of uniform cuts: \"uniform_own\" choices of each stage, \"uniform_same\" for all, "
          "\"uniform_full\" recomputation; None if that does not fit.")
      .def_prop_ro("least_budget", of(&BoundPipeline::result, &PipelineResult::least_budget),
                   "The least budget with a plan, if this budget has none.")
      .def_prop_ro("reason", of(&BoundPipeline::result, &PipelineResult::reason),
                   "The reason why there is no plan.")
      .def_prop_ro("seconds", of(&BoundPipeline::result, &PipelineResult::seconds))
      .def("__repr__", [](const BoundPipeline& b) {
        return nb::str("<remat.PipelineResult: {} stages, {}>").format(b.stages.size(), b.result.status);
      });
  m.def("plan_pipeline", plan_stages, nb::arg("graphs"), nb::arg("stages"), nb::arg("microbatches"),
        nb::arg("budget"), nb::arg("schedule"), nb::arg("chunks"), nb::arg("executor"),
        nb::arg("whole_layers"), nb::arg("data"), nb::arg("state"), nb::arg("effort"), "See remat.pipeline.");
  m.def(
      "pipeline_turns",
      [](const std::string& schedule, int devices, int chunks, int microbatches) {
        std::vector<std::vector<std::tuple<int, int, bool>>> rows;
        for (const auto& row : schedule_turns(parse_schedule(schedule), devices, chunks, microbatches)) {
          rows.emplace_back();
          for (const Turn& turn : row) rows.back().emplace_back(turn.microbatch, turn.chunk, turn.backward);
        }
        return rows;
      },
      nb::arg("schedule"), nb::arg("devices"), nb::arg("chunks"), nb::arg("microbatches"),
      "For each device, (micro-batch, chunk, backward) in sequence.");
}

}  // namespace remat::python
