#include "remat/c.h"

int64_t plugin_keep_all_peak(const remat_graph_data* data) {
  remat_graph* graph = NULL;
  if (remat_make_graph(data, &graph) != REMAT_OK) return -1;
  remat_graph_info info = {.size = sizeof info};
  remat_get_graph(graph, &info);
  remat_free_graph(graph);
  return info.keep_all_peak;
}
