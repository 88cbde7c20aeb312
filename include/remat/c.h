/* Remat for C, and for every language that calls C: a graph goes in as arrays, plans and layouts come out.
 *
 * Errors. A function that can fail returns 0 (REMAT_OK), or a remat_error and leaves its outputs as they are;
 * remat_error_text() then is one line that names the place and, where two numbers disagree, both. That no
 * plan fits is no error: it is the status of a plan.
 *
 * Memory. What is given is copied or done with when the call returns. What is returned by a get function
 * belongs to the handle, until that is freed. A handle is freed by the function of its kind; freeing NULL
 * does nothing.
 *
 * Threads. A graph never changes: any number of threads may plan it at once. Any number may read a handle.
 * Who frees a handle takes care that nobody uses it any more. remat_cancel may be called from any thread and
 * from a signal handler. A solver that does not stop in time may still be at work on a thread of its own when
 * a call has returned, so the library must not be unloaded (dlclose); the end of the process waits for it.
 *
 * Growth. Every struct begins with its size: set it to sizeof, and all that is not needed to 0, as
 * `remat_plan_options options = {.size = sizeof options};` does. Later versions add fields at the end alone.
 * A program may be older than the library: what it does not know of is taken for 0, and not written. It may
 * be newer: what this library does not know of is an error unless it is 0. Values of enumerations stay.
 *
 * Bytes and durations are at least 0 and below 2^62; durations are in any unit. docs/model.md says what a
 * plan is, docs/cpp.md has an example. Copies to a host, files and the other planners' tools are in C++
 * alone. */
#ifndef REMAT_C_H_
#define REMAT_C_H_

#include <stddef.h>
#include <stdint.h>

#define REMAT_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct remat_graph remat_graph;
typedef struct remat_plans remat_plans;               /* one plan or the points of a sweep */
typedef struct remat_layout remat_layout;             /* an offset for every buffer */
typedef struct remat_cancellation remat_cancellation; /* a request to stop */

enum remat_error {
  REMAT_OK = 0,
  REMAT_BAD_INPUT = 1, /* a graph, plan or table of buffers that breaks a rule */
  REMAT_BAD_USAGE = 2, /* an unknown planner or option, a value that an option cannot take, a null pointer */
  REMAT_OUT_OF_MEMORY = 3,
  REMAT_REFUSED = 4, /* by the system: no more threads, ... */
  REMAT_BUG = 5      /* of the library */
};

/* "0.1.0". */
REMAT_C_API const char* remat_version(void);
/* Of the last call on this thread that failed; "" where none has. Stays until the next call that fails. */
REMAT_C_API const char* remat_error_text(void);

/* --- graphs --- */

enum remat_phase {
  REMAT_NO_PHASE = 0,
  REMAT_FORWARD = 1,
  REMAT_LOSS = 2,
  REMAT_BACKWARD = 3,
  REMAT_UPDATE = 4
};

/* Ops in a topological order, and values, both named by their index. The inputs of op i are
 * inputs[input_begin[i]] to inputs[input_begin[i + 1] - 1]; outputs and `after` likewise. */
typedef struct remat_graph_data {
  size_t size;
  const char* name; /* or NULL */
  int64_t num_values;
  const int64_t* value_bytes;
  int64_t num_ops;
  const int64_t* durations;
  const int64_t* input_begin; /* num_ops + 1 numbers, from 0 on */
  const int64_t* inputs;      /* values that ops read */
  const int64_t* output_begin;
  const int64_t* outputs; /* values that ops make */
  int64_t num_graph_inputs;
  const int64_t* graph_inputs; /* values that no op makes, in memory from start to end */
  int64_t num_graph_outputs;
  const int64_t* graph_outputs; /* values that are kept to the end */
  /* NULL where there are none. */
  const int64_t* workspaces;       /* of each op: bytes that it needs only while it runs */
  const int64_t* generator_states; /* of each op: bytes saved to draw the same random numbers again */
  const uint8_t* run_once;         /* of each op: 1 where it must not run again, else 0 */
  const uint8_t* phases;           /* of each op: a remat_phase */
  const int64_t* forward_of;       /* of each op: the forward op that it differentiates, or -1 */
  const int64_t* after_begin;      /* with `after`: ops that must have run before */
  const int64_t* after;
  int64_t num_overs;
  const int64_t* overs; /* three numbers each: an op, its input and the output that it may write over that */
  const char* const* op_names;
  const char* const* value_names;
} remat_graph_data;

REMAT_C_API int remat_make_graph(const remat_graph_data* data, remat_graph** graph);

typedef struct remat_graph_info {
  size_t size;
  int64_t num_ops;
  int64_t num_values;
  int64_t
      keep_all_peak;  /* bytes, where every op runs once in the graph's order: what budgets are shares of */
  int64_t least_peak; /* bytes: no plan in the graph's order is proved to need less */
  int64_t base_duration; /* of every op once */
} remat_graph_info;

REMAT_C_API int remat_get_graph(const remat_graph* graph, remat_graph_info* info);
REMAT_C_API void remat_free_graph(remat_graph* graph);

/* --- plans --- */

REMAT_C_API int remat_make_cancellation(remat_cancellation** cancellation);
/* Ends all calls that were given it and those still to come, soon, each with the best that it has by then. */
REMAT_C_API void remat_cancel(remat_cancellation* cancellation);
/* Not before the calls that were given it have returned. */
REMAT_C_API void remat_free_cancellation(remat_cancellation* cancellation);

/* The best plan or layout so far. */
typedef struct remat_progress {
  size_t size;
  const char* planner; /* the one that found it */
  double seconds;      /* since the call began */
  int64_t peak;        /* bytes of it, of the arena for a layout; -1 where there is none yet */
  int64_t duration;    /* -1 where there is none yet, and for layouts */
  int32_t fits;        /* 1 where it is within the budget */
} remat_progress;

/* Called with every better plan, on whichever thread found it, never two at once. Another value than 0
 * cancels the call. It must return (no longjmp, no exception) and call nothing of a handle that is being
 * made. */
typedef int (*remat_progress_fn)(const remat_progress* progress, void* data);

typedef struct remat_option {
  const char* name;
  const char* value;
} remat_option;

enum remat_order { REMAT_FIXED_ORDER = 0, REMAT_FREE_ORDER = 1 };
enum remat_objective { REMAT_LEAST_TIME = 0, REMAT_LEAST_PEAK = 1 };

/* With no limit at all a call may take hours. With a work limit and without a time limit the same plan comes
 * out on every machine. */
typedef struct remat_plan_options {
  size_t size;
  int64_t budget;      /* bytes; 0: none, for REMAT_LEAST_PEAK and sweeps alone */
  const char* planner; /* NULL: "auto" */
  int32_t order;       /* a remat_order: whether first runs follow the graph's order */
  int32_t objective;   /* a remat_objective */
  double time_limit;   /* seconds; 0: none */
  int64_t work_limit;  /* units of some hundred nanoseconds; 0: none */
  double gap_limit;    /* 0.01: stop within 1 % of the bound on the duration; 0: none */
  uint64_t seed;
  int32_t threads; /* 0: 1 */
  int32_t points;  /* of a sweep, 2 to 1000; 0: 20 */
  remat_progress_fn progress;
  void* progress_data;
  const remat_cancellation* cancellation; /* or NULL */
  int64_t num_options;
  const remat_option* options; /* of the planner */
} remat_plan_options;

/* One plan within the budget. */
REMAT_C_API int remat_make_plan(const remat_graph* graph, const remat_plan_options* options,
                                remat_plans** plans);
/* The fastest plans at budgets from the keep-all peak down to the smallest peak found. */
REMAT_C_API int remat_make_sweep(const remat_graph* graph, const remat_plan_options* options,
                                 remat_plans** plans);

enum remat_status {
  REMAT_OPTIMAL = 0,    /* a plan, and no faster one exists within the budget in this order */
  REMAT_FEASIBLE = 1,   /* a plan within the budget */
  REMAT_INFEASIBLE = 2, /* proved that there is none */
  REMAT_UNKNOWN = 3     /* none found, nothing proved */
};

enum remat_stopped_by {
  REMAT_BY_PROOF = 0,
  REMAT_BY_TIME = 1,
  REMAT_BY_WORK = 2,
  REMAT_BY_CANCEL = 3,
  REMAT_BY_TARGET = 4, /* the planner had no more to do */
  REMAT_BY_GAP = 5
};

/* Numbers of a plan are those of the reference simulator. */
typedef struct remat_plan_info {
  size_t size;
  int64_t count;  /* of the plans in the handle */
  int32_t status; /* a remat_status */
  int32_t stopped_by;
  int64_t budget;       /* bytes; 0 where there was none */
  int64_t num_steps;    /* 0 where there is no plan */
  const int64_t* steps; /* the op that each step runs */
  int64_t peak;         /* bytes; of the plan that came closest where none fits, -1 where there is none */
  int64_t duration;     /* -1 where no plan fits, as overhead and gap */
  double overhead;      /* (duration - base_duration) / base_duration */
  double gap;           /* (duration - duration_bound) / duration_bound */
  int64_t peak_bound;   /* no plan has a smaller peak, and the argument that proves it */
  const char* peak_argument;
  int64_t duration_bound; /* no plan within the budget takes less */
  const char* duration_argument;
  const char* planner; /* the one that made the plan */
  double seconds;      /* that the call took; for a sweep, of all points */
  int32_t knee;        /* of a sweep: 1 for the point with the best exchange of memory for time */
} remat_plan_info;

/* index: from 0; of a sweep by falling budget. */
REMAT_C_API int remat_get_plan(const remat_plans* plans, int64_t index, remat_plan_info* info);
REMAT_C_API void remat_free_plans(remat_plans* plans);

/* --- layouts --- */

/* Offsets for the buffers of a plan (graph and steps), or for a table of buffers: one of the two. */
typedef struct remat_layout_data {
  size_t size;
  const remat_graph* graph;
  int64_t num_steps;
  const int64_t* steps;
  int64_t num_buffers;
  const int64_t* first; /* each buffer is needed in the half-open interval [first, end) */
  const int64_t* end;
  const int64_t* bytes;
  int64_t alignment; /* of every offset, and what sizes are rounded up to; 0: 1 */
  int64_t capacity;  /* bytes that any layout may take; 0: the smallest is sought */
  double time_limit; /* as for plans, as all that follow */
  int64_t work_limit;
  uint64_t seed;
  remat_progress_fn progress;
  void* progress_data;
  const remat_cancellation* cancellation;
} remat_layout_data;

REMAT_C_API int remat_make_layout(const remat_layout_data* data, remat_layout** layout);

typedef struct remat_layout_info {
  size_t size;
  int32_t status; /* a remat_status: optimal where no smaller arena exists */
  int32_t stopped_by;
  int64_t num_buffers;    /* of a plan: one for each instance and workspace of some bytes */
  const int64_t* offsets; /* of each buffer */
  const int64_t* first;   /* of a plan: steps */
  const int64_t* end;
  const int64_t* bytes;
  const int64_t* values; /* of a plan: the value in each buffer, -1 for a workspace; NULL for a table */
  int64_t arena;         /* bytes of all buffers together; inputs of the graph are not in it */
  int64_t arena_bound;   /* no arena is smaller */
  double seconds;
} remat_layout_info;

REMAT_C_API int remat_get_layout(const remat_layout* layout, remat_layout_info* info);
REMAT_C_API void remat_free_layout(remat_layout* layout);

#ifdef __cplusplus
}
#endif

#endif /* REMAT_C_H_ */
