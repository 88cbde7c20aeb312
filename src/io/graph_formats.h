// The formats that a graph can come in; `parse_graph` picks one by content.
#pragma once

#include <string_view>

#include "remat/io.h"

namespace remat::io {

/// A remat.graph file, version 1, streamed into a GraphBuilder: the text is never held as a tree.
LoadedGraph read_remat_graph(std::string_view text, std::string_view place);

/// Node-link JSON as networkx writes it (Checkmate, MOCCASIN): one value per node, no inputs, no outputs.
LoadedGraph read_node_link(std::string_view text, std::string_view place);

}  // namespace remat::io
