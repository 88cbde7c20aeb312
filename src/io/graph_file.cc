#include "base/one_line.h"
#include "io/graph_formats.h"
#include "io/json_reader.h"

namespace remat {

std::string_view to_string(GraphFormat format) {
  return format == GraphFormat::kRematGraph ? "remat.graph" : "node-link";
}

namespace {

/// Reads a document's top level until its "format".
class Sniffer : public io::Object {
 public:
  Sniffer() {
    optional("format", format);
    optional("nodes", nodes_);
  }
  struct Format : io::Skip {
    void text(io::Reader& reader, std::string& read) override {
      value = std::move(read);
      if (value == "remat.graph") reader.stop();
    }
    std::string value;
  };
  Format format;
  bool has_nodes() const { return has("nodes"); }

 protected:
  bool unknown_keys_are_noted() const override { return false; }

 private:
  io::Skip nodes_;
};

}  // namespace

LoadedGraph parse_graph(std::string_view text, std::string_view place) {
  Sniffer sniffer;
  io::Reader(text, place).read(sniffer);
  if (sniffer.format.value == "remat.graph") return io::read_remat_graph(text, place);
  if (sniffer.has_nodes()) return io::read_node_link(text, place);
  if (!sniffer.format.value.empty()) {
    throw InputError(std::string(place) + ": the format is '" + one_line(sniffer.format.value) +
                     "' instead of 'remat.graph'");
  }
  throw InputError(std::string(place) +
                   ": neither a remat.graph file (no 'format') nor node-link JSON (no 'nodes')");
}

LoadedGraph load_graph(const std::filesystem::path& path) {
  const std::string text = read_file(path, FileKind::kGraph);
  return parse_graph(text, path.string());
}

}  // namespace remat
