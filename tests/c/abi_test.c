/* Guards the C interface: what an old program was compiled with must stay. Also does real work with it. A C11
 * program, so that the header is read by a C compiler. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remat/c.h"

/* Sizes may only grow, and offsets never change. */
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
AT(remat_graph_data, name, 8);
AT(remat_graph_data, num_values, 16);
AT(remat_graph_data, value_bytes, 24);
AT(remat_graph_data, num_ops, 32);
AT(remat_graph_data, durations, 40);
AT(remat_graph_data, input_begin, 48);
AT(remat_graph_data, inputs, 56);
AT(remat_graph_data, output_begin, 64);
AT(remat_graph_data, outputs, 72);
AT(remat_graph_data, num_graph_inputs, 80);
AT(remat_graph_data, graph_inputs, 88);
AT(remat_graph_data, num_graph_outputs, 96);
AT(remat_graph_data, graph_outputs, 104);
AT(remat_graph_data, workspaces, 112);
AT(remat_graph_data, generator_states, 120);
AT(remat_graph_data, run_once, 128);
AT(remat_graph_data, phases, 136);
AT(remat_graph_data, forward_of, 144);
AT(remat_graph_data, after_begin, 152);
AT(remat_graph_data, after, 160);
AT(remat_graph_data, num_overs, 168);
AT(remat_graph_data, overs, 176);
AT(remat_graph_data, op_names, 184);
AT(remat_graph_data, value_names, 192);
_Static_assert(sizeof(remat_graph_data) == 200, "remat_graph_data");

AT(remat_graph_info, num_ops, 8);
AT(remat_graph_info, num_values, 16);
AT(remat_graph_info, keep_all_peak, 24);
AT(remat_graph_info, least_peak, 32);
AT(remat_graph_info, base_duration, 40);
_Static_assert(sizeof(remat_graph_info) == 48, "remat_graph_info");

AT(remat_progress, planner, 8);
AT(remat_progress, seconds, 16);
AT(remat_progress, peak, 24);
AT(remat_progress, duration, 32);
AT(remat_progress, fits, 40);
_Static_assert(sizeof(remat_progress) == 48, "remat_progress");

AT(remat_plan_options, budget, 8);
AT(remat_plan_options, planner, 16);
AT(remat_plan_options, order, 24);
AT(remat_plan_options, objective, 28);
AT(remat_plan_options, time_limit, 32);
AT(remat_plan_options, work_limit, 40);
AT(remat_plan_options, gap_limit, 48);
AT(remat_plan_options, seed, 56);
AT(remat_plan_options, threads, 64);
AT(remat_plan_options, points, 68);
AT(remat_plan_options, progress, 72);
AT(remat_plan_options, progress_data, 80);
AT(remat_plan_options, cancellation, 88);
AT(remat_plan_options, num_options, 96);
AT(remat_plan_options, options, 104);
_Static_assert(sizeof(remat_plan_options) == 112, "remat_plan_options");
_Static_assert(sizeof(remat_option) == 16, "remat_option");

AT(remat_plan_info, count, 8);
AT(remat_plan_info, status, 16);
AT(remat_plan_info, stopped_by, 20);
AT(remat_plan_info, budget, 24);
AT(remat_plan_info, num_steps, 32);
AT(remat_plan_info, steps, 40);
AT(remat_plan_info, peak, 48);
AT(remat_plan_info, duration, 56);
AT(remat_plan_info, overhead, 64);
AT(remat_plan_info, gap, 72);
AT(remat_plan_info, peak_bound, 80);
AT(remat_plan_info, peak_argument, 88);
AT(remat_plan_info, duration_bound, 96);
AT(remat_plan_info, duration_argument, 104);
AT(remat_plan_info, planner, 112);
AT(remat_plan_info, seconds, 120);
AT(remat_plan_info, knee, 128);
_Static_assert(sizeof(remat_plan_info) == 136, "remat_plan_info");

AT(remat_layout_data, graph, 8);
AT(remat_layout_data, num_steps, 16);
AT(remat_layout_data, steps, 24);
AT(remat_layout_data, num_buffers, 32);
AT(remat_layout_data, first, 40);
AT(remat_layout_data, end, 48);
AT(remat_layout_data, bytes, 56);
AT(remat_layout_data, alignment, 64);
AT(remat_layout_data, capacity, 72);
AT(remat_layout_data, time_limit, 80);
AT(remat_layout_data, work_limit, 88);
AT(remat_layout_data, seed, 96);
AT(remat_layout_data, progress, 104);
AT(remat_layout_data, progress_data, 112);
AT(remat_layout_data, cancellation, 120);
_Static_assert(sizeof(remat_layout_data) == 128, "remat_layout_data");

AT(remat_layout_info, status, 8);
AT(remat_layout_info, stopped_by, 12);
AT(remat_layout_info, num_buffers, 16);
AT(remat_layout_info, offsets, 24);
AT(remat_layout_info, first, 32);
AT(remat_layout_info, end, 40);
AT(remat_layout_info, bytes, 48);
AT(remat_layout_info, values, 56);
AT(remat_layout_info, arena, 64);
AT(remat_layout_info, arena_bound, 72);
AT(remat_layout_info, seconds, 80);
_Static_assert(sizeof(remat_layout_info) == 88, "remat_layout_info");

_Static_assert(REMAT_BAD_INPUT == 1 && REMAT_BAD_USAGE == 2 && REMAT_OUT_OF_MEMORY == 3 &&
                   REMAT_REFUSED == 4 && REMAT_BUG == 5,
               "remat_error");
_Static_assert(REMAT_FORWARD == 1 && REMAT_LOSS == 2 && REMAT_BACKWARD == 3 && REMAT_UPDATE == 4,
               "remat_phase");
_Static_assert(REMAT_FREE_ORDER == 1 && REMAT_LEAST_PEAK == 1, "remat_order, remat_objective");
_Static_assert(REMAT_OPTIMAL == 0 && REMAT_FEASIBLE == 1 && REMAT_INFEASIBLE == 2 && REMAT_UNKNOWN == 3,
               "remat_status");
_Static_assert(REMAT_BY_PROOF == 0 && REMAT_BY_TIME == 1 && REMAT_BY_WORK == 2 && REMAT_BY_CANCEL == 3 &&
                   REMAT_BY_TARGET == 4 && REMAT_BY_GAP == 5,
               "remat_stopped_by");

static int failures = 0;
#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      ++failures;                                                                              \
      fprintf(stderr, "%s:%d: not so: %s (error text '%s')\n", __FILE__, __LINE__, #condition, \
              remat_error_text());                                                             \
    }                                                                                          \
  } while (0)

enum { LAYERS = 8, OPS = 2 * LAYERS, VALUES = OPS + 1 };

/* f0 .. f7 make activations, b7 .. b0 read the activation below and the gradient that comes down. */
static struct {
  int64_t bytes[VALUES], durations[OPS], input_begin[OPS + 1], inputs[2 * OPS], output_begin[OPS + 1],
      outputs[OPS], graph_inputs[1], graph_outputs[1];
  const char* names[OPS];
} chain;

static remat_graph_data chain_data(void) {
  int64_t reads = 0;
  chain.bytes[0] = 1 << 20;
  for (int64_t i = 0; i < OPS; ++i) {
    const int backward = i >= LAYERS;
    chain.bytes[i + 1] = 1 << 20;
    chain.durations[i] = backward ? 20 : 10;
    chain.input_begin[i] = reads;
    if (backward) chain.inputs[reads++] = OPS - 1 - i;
    chain.inputs[reads++] = i;
    chain.output_begin[i] = i;
    chain.outputs[i] = i + 1;
    chain.names[i] = backward ? "b" : "f";
  }
  chain.input_begin[OPS] = reads;
  chain.output_begin[OPS] = OPS;
  chain.graph_inputs[0] = 0;
  chain.graph_outputs[0] = OPS;
  remat_graph_data data = {.size = sizeof data};
  data.name = "chain";
  data.num_values = VALUES;
  data.value_bytes = chain.bytes;
  data.num_ops = OPS;
  data.durations = chain.durations;
  data.input_begin = chain.input_begin;
  data.inputs = chain.inputs;
  data.output_begin = chain.output_begin;
  data.outputs = chain.outputs;
  data.num_graph_inputs = 1;
  data.graph_inputs = chain.graph_inputs;
  data.num_graph_outputs = 1;
  data.graph_outputs = chain.graph_outputs;
  data.op_names = chain.names;
  return data;
}

static remat_graph* make_chain(void) {
  const remat_graph_data data = chain_data();
  remat_graph* graph = NULL;
  CHECK(remat_make_graph(&data, &graph) == REMAT_OK);
  if (!graph) exit(1);
  memset(&chain, 0xff, sizeof chain); /* the arrays were borrowed for the call alone */
  return graph;
}

static void a_graph_is_planned_within_its_budget(const remat_graph* graph) {
  remat_graph_info graph_info = {.size = sizeof graph_info};
  CHECK(remat_get_graph(graph, &graph_info) == REMAT_OK);
  CHECK(graph_info.num_ops == OPS && graph_info.num_values == VALUES);
  CHECK(graph_info.keep_all_peak == 10 << 20);
  CHECK(graph_info.least_peak <= 6 << 20);
  CHECK(graph_info.base_duration == 30 * LAYERS);

  remat_plan_options options = {.size = sizeof options};
  options.budget = graph_info.keep_all_peak * 6 / 10;
  options.work_limit = 20000000;
  remat_plans* plans = NULL;
  CHECK(remat_make_plan(graph, &options, &plans) == REMAT_OK);
  remat_plan_info plan = {.size = sizeof plan};
  CHECK(remat_get_plan(plans, 0, &plan) == REMAT_OK);
  CHECK(plan.status == REMAT_OPTIMAL && plan.stopped_by == REMAT_BY_PROOF);
  CHECK(plan.count == 1 && plan.num_steps > OPS && plan.budget == options.budget);
  CHECK(plan.peak == 6 << 20 && plan.duration == 280 && plan.duration_bound == 280);
  CHECK(plan.overhead > 0.16 && plan.overhead < 0.17 && plan.gap == 0);
  CHECK(plan.steps[0] == 0 && plan.steps[plan.num_steps - 1] == OPS - 1);
  CHECK(strlen(plan.planner) > 0 && strlen(plan.peak_argument) > 0 && strlen(plan.duration_argument) > 0);

  remat_layout_data data = {.size = sizeof data};
  data.graph = graph;
  data.num_steps = plan.num_steps;
  data.steps = plan.steps;
  data.work_limit = 10000000;
  remat_layout* layout = NULL;
  CHECK(remat_make_layout(&data, &layout) == REMAT_OK);
  remat_layout_info info = {.size = sizeof info};
  CHECK(remat_get_layout(layout, &info) == REMAT_OK);
  /* Values of equal bytes: the arena is the peak less the graph's input. */
  CHECK(info.status == REMAT_OPTIMAL && info.arena == 5 << 20 && info.arena_bound == info.arena);
  CHECK(info.num_buffers == plan.num_steps && info.values[0] == 1 && info.first[0] == 0);
  remat_free_layout(layout);
  remat_free_plans(plans);
}

static void no_plan_is_a_status(const remat_graph* graph) {
  remat_plan_options options = {.size = sizeof options};
  options.budget = 1 << 20;
  remat_plans* plans = NULL;
  CHECK(remat_make_plan(graph, &options, &plans) == REMAT_OK);
  remat_plan_info plan = {.size = sizeof plan};
  CHECK(remat_get_plan(plans, 0, &plan) == REMAT_OK);
  CHECK(plan.status == REMAT_INFEASIBLE && plan.num_steps == 0 && !plan.steps);
  CHECK(plan.duration == -1 && plan.peak_bound > options.budget);
  CHECK(remat_get_plan(plans, 1, &plan) == REMAT_BAD_USAGE);
  CHECK(!strcmp(remat_error_text(), "index is 1, not from 0 to 0"));
  remat_free_plans(plans);
}

static void a_sweep_is_a_list_of_plans(const remat_graph* graph) {
  remat_plan_options options = {.size = sizeof options};
  options.points = 5;
  options.work_limit = 20000000;
  remat_plans* plans = NULL;
  CHECK(remat_make_sweep(graph, &options, &plans) == REMAT_OK);
  int64_t before = INT64_MAX, knees = 0, count = 1;
  for (int64_t i = 0; i < count; ++i) {
    remat_plan_info plan = {.size = sizeof plan};
    CHECK(remat_get_plan(plans, i, &plan) == REMAT_OK);
    CHECK(plan.num_steps >= OPS && plan.peak <= plan.budget && plan.budget < before);
    before = plan.budget;
    count = plan.count;
    knees += plan.knee;
  }
  CHECK(count == 5 && knees == 1);
  remat_free_plans(plans);
  plans = NULL;
  options.budget = 1;
  CHECK(remat_make_sweep(graph, &options, &plans) == REMAT_BAD_USAGE && !plans);
  CHECK(!strcmp(remat_error_text(), "budget is 1, and a sweep chooses its own"));
}

struct seen {
  int calls, bad;
};

static int stop_at_once(const remat_progress* progress, void* data) {
  struct seen* seen = data;
  ++seen->calls;
  if (progress->size != sizeof *progress || !progress->planner || progress->peak <= 0) ++seen->bad;
  return 1;
}

/* Without a limit: a call that does not listen does not end. */
static void progress_cancels(const remat_graph* graph) {
  struct seen seen = {0};
  remat_plan_options options = {.size = sizeof options};
  options.budget = 5 << 20; /* no plan there is proved optimal at once */
  options.planner = "search";
  options.progress = stop_at_once;
  options.progress_data = &seen;
  remat_plans* plans = NULL;
  CHECK(remat_make_plan(graph, &options, &plans) == REMAT_OK);
  remat_plan_info plan = {.size = sizeof plan};
  CHECK(remat_get_plan(plans, 0, &plan) == REMAT_OK);
  CHECK(seen.calls > 0 && seen.bad == 0);
  CHECK(plan.stopped_by == REMAT_BY_CANCEL);
  remat_free_plans(plans);
}

static void a_cancellation_ends_what_was_given_it(const remat_graph* graph) {
  remat_cancellation* cancellation = NULL;
  CHECK(remat_make_cancellation(&cancellation) == REMAT_OK);
  remat_cancel(cancellation);
  remat_plan_options options = {.size = sizeof options};
  options.budget = 7 << 20;
  options.cancellation = cancellation;
  remat_plans* plans = NULL;
  CHECK(remat_make_plan(graph, &options, &plans) == REMAT_OK);
  remat_plan_info plan = {.size = sizeof plan};
  CHECK(remat_get_plan(plans, 0, &plan) == REMAT_OK);
  CHECK(plan.status == REMAT_UNKNOWN && plan.stopped_by == REMAT_BY_CANCEL);
  remat_free_plans(plans);
  remat_free_cancellation(cancellation);
}

static void a_table_of_buffers_is_laid_out(void) {
  const int64_t first[] = {0, 1, 3}, end[] = {2, 4, 5}, bytes[] = {100, 50, 100};
  remat_layout_data data = {.size = sizeof data};
  data.num_buffers = 3;
  data.first = first;
  data.end = end;
  data.bytes = bytes;
  data.alignment = 64;
  remat_layout* layout = NULL;
  CHECK(remat_make_layout(&data, &layout) == REMAT_OK);
  remat_layout_info info = {.size = sizeof info};
  CHECK(remat_get_layout(layout, &info) == REMAT_OK);
  CHECK(info.status == REMAT_OPTIMAL && info.arena == 192 && info.num_buffers == 3 && !info.values);
  CHECK(info.offsets[0] % 64 == 0 && info.offsets[0] == info.offsets[2]);
  remat_free_layout(layout);
  layout = NULL;
  data.end = first;
  CHECK(remat_make_layout(&data, &layout) == REMAT_BAD_INPUT && !layout);
  CHECK(!strcmp(remat_error_text(), "buffer 0: its end 0 is not after its first 0"));
}

static void expect_bad_graph(const remat_graph_data* data, int code, const char* text) {
  remat_graph* graph = NULL;
  CHECK(remat_make_graph(data, &graph) == code);
  CHECK(!graph);
  CHECK(!strcmp(remat_error_text(), text));
}

static void bad_input_is_one_line(const remat_graph* graph) {
  remat_graph_data data = chain_data();
  chain.inputs[3] = 99;
  expect_bad_graph(&data, REMAT_BAD_INPUT, "op 3 'f': input 99 is not one of the 17 values");
  data = chain_data();
  chain.input_begin[2] = 0;
  expect_bad_graph(&data, REMAT_BAD_INPUT, "input_begin[2] is 0, less than the 1 before it");
  data = chain_data();
  data.outputs = NULL;
  expect_bad_graph(&data, REMAT_BAD_INPUT, "outputs is NULL, and output_begin[16] is 16");
  data = chain_data();
  data.size = 8;
  expect_bad_graph(&data, REMAT_BAD_USAGE,
                   "remat_graph_data.size is 8, not from 200 to 4096: set it to sizeof(remat_graph_data)");
  data = chain_data();
  chain.bytes[4] = -5;
  remat_graph* none = NULL;
  CHECK(remat_make_graph(&data, &none) == REMAT_BAD_INPUT && strstr(remat_error_text(), "-5"));

  remat_plan_options options = {.size = sizeof options};
  remat_plans* plans = NULL;
  CHECK(remat_make_plan(graph, &options, &plans) == REMAT_BAD_USAGE && !plans);
  CHECK(!strcmp(remat_error_text(), "budget is 0, not from 1 to 4611686018427387903"));
  options.budget = 1;
  options.planner = "serach";
  CHECK(remat_make_plan(graph, &options, &plans) == REMAT_BAD_USAGE && !plans);
  CHECK(strstr(remat_error_text(), "unknown planner 'serach': did you mean 'search'?"));
  CHECK(remat_make_plan(NULL, &options, &plans) == REMAT_BAD_USAGE);
  CHECK(!strcmp(remat_error_text(), "graph is NULL"));
}

/* A program that was compiled with a later header. */
static void what_is_not_known_must_be_zero(const remat_graph* graph) {
  struct {
    remat_plan_options known;
    int64_t added;
  } newer = {{.size = sizeof newer}, 0};
  newer.known.budget = 10 << 20;
  remat_plans* plans = NULL;
  CHECK(remat_make_plan(graph, &newer.known, &plans) == REMAT_OK);
  struct {
    remat_plan_info known;
    int64_t added;
  } info = {{.size = sizeof info}, 77};
  CHECK(remat_get_plan(plans, 0, &info.known) == REMAT_OK);
  CHECK(info.known.size == sizeof info && info.known.num_steps == OPS && info.added == 77);
  remat_free_plans(plans);
  plans = NULL;
  newer.added = 1;
  CHECK(remat_make_plan(graph, &newer.known, &plans) == REMAT_BAD_USAGE && !plans);
  CHECK(strstr(remat_error_text(), "knows 112 bytes"));
}

int main(void) {
  CHECK(!strcmp(remat_error_text(), ""));
  CHECK(!strcmp(remat_version(), EXPECTED_VERSION));
  remat_graph* graph = make_chain();
  a_graph_is_planned_within_its_budget(graph);
  no_plan_is_a_status(graph);
  a_sweep_is_a_list_of_plans(graph);
  progress_cancels(graph);
  a_cancellation_ends_what_was_given_it(graph);
  a_table_of_buffers_is_laid_out();
  bad_input_is_one_line(graph);
  what_is_not_known_must_be_zero(graph);
  remat_free_graph(graph);
  remat_free_graph(NULL);
  if (failures == 0) puts("the C interface is as it was");
  return failures == 0 ? 0 : 1;
}
