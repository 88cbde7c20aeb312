// remat.layout: reading, writing, and the check against the plan.
#include <algorithm>
#include <map>
#include <utility>

#include "io/differences.h"
#include "io/json_reader.h"
#include "io/json_text.h"
#include "remat/io.h"
#include "remat/layout_io.h"

namespace remat {
namespace {

class BufferObject : public io::Object {
 public:
  explicit BufferObject(std::vector<LayoutEntry>& into) : into_(&into) {
    optional("value", value_);
    required("first", first_);
    required("end", end_);
    required("bytes", bytes_);
    required("offset", offset_);
  }

 protected:
  std::string label() const override { return "buffer " + std::to_string(into_->size()); }
  std::string_view key_prefix() const override { return "buffers[]."; }
  void finish(io::Reader& reader) override {
    for (const auto& [name, count] :
         {std::pair("first", &first_), {"end", &end_}, {"bytes", &bytes_}, {"offset", &offset_}}) {
      if (!count->value) reader.fail(std::string("'") + name + "' is null");
    }
    into_->push_back({value_.value, *first_.value, *end_.value, Bytes(*bytes_.value), Bytes(*offset_.value)});
  }

 private:
  std::vector<LayoutEntry>* into_;
  io::Count value_, first_, end_, bytes_, offset_;
};

class LayoutDocument : public io::Object {
 public:
  LayoutDocument() {
    required("format", format_);
    required("version", version_);
    optional("graph", graph_);
    optional("graph_hash", graph_hash_);
    optional("status", status_);
    required("alignment", alignment_);
    optional("arena", arena_);
    optional("resident", resident_);
    optional("pool", pool_);
    optional("peak", peak_);
    optional("arena_lower_bound", bound_);
    required("buffers", buffers_);
  }
  LayoutRecord record() {
    LayoutRecord layout;
    layout.graph_name = graph_.value;
    layout.graph_hash = graph_hash_.value;
    if (has("status")) layout.status = status_.word();
    layout.alignment = alignment_.value.value_or(0);
    layout.arena = arena_.as<Bytes>();
    layout.resident = resident_.as<Bytes>();
    layout.pool = pool_.as<Bytes>();
    layout.peak = peak_.as<Bytes>();
    layout.bound = bound_.as<Bytes>();
    layout.buffers = std::move(entries_);
    return layout;
  }

 protected:
  void finish(io::Reader& reader) override {
    if (alignment_.value.value_or(0) < 1) {
      reader.fail("alignment " + std::to_string(alignment_.value.value_or(0)) + " is not 1 or more");
    }
  }

 private:
  std::vector<LayoutEntry> entries_;
  BufferObject buffer_{entries_};
  io::FormatName format_{"remat.layout"};
  io::FormatVersion version_;
  io::Text graph_, graph_hash_;
  io::Choice status_{{"optimal", "feasible"}};
  io::Count alignment_, arena_, resident_, pool_, peak_, bound_;
  io::Array buffers_{buffer_};
};

std::string name_of(const LayoutEntry& entry) {
  return entry.value
             ? "value " + std::to_string(*entry.value) + " made at step " + std::to_string(entry.first)
             : "the workspace of step " + std::to_string(entry.first);
}

LayoutEntry entry_of(const PlanPiece& piece, Bytes offset) {
  LayoutEntry entry{std::nullopt, piece.life.first, piece.life.end, piece.life.size, offset};
  if (piece.value) entry.value = piece.value.index();
  return entry;
}

/// The offsets of the plan's buffers, in sequence; or lines about wrong entries.
std::vector<Bytes> offsets_of(const PlanBuffers& buffers, const LayoutRecord& layout,
                              io::Differences& differences) {
  using Key = std::pair<std::int64_t, std::int64_t>;
  std::map<Key, const LayoutEntry*> entries;
  for (const LayoutEntry& entry : layout.buffers) {
    if (!entries.try_emplace({entry.value.value_or(-1), entry.first}, &entry).second) {
      differences.lines.push_back(name_of(entry) + " is listed twice");
    }
  }
  std::vector<std::optional<Bytes>> placed(buffers.problem.buffers.size());
  for (const PlanPiece& piece : buffers.pieces) {
    const LayoutEntry expected = entry_of(piece, Bytes());
    const auto found = entries.find({expected.value.value_or(-1), expected.first});
    if (found == entries.end()) {
      differences.lines.push_back(name_of(expected) + " has no offset");
      continue;
    }
    const LayoutEntry& entry = *found->second;
    differences.compare(name_of(entry) + ": end", std::to_string(entry.end), std::to_string(expected.end));
    differences.compare(name_of(entry) + ": bytes", std::optional(entry.bytes), expected.bytes);
    std::optional<Bytes>& offset = placed[static_cast<std::size_t>(piece.buffer.index())];
    if (offset && *offset != entry.offset) {
      differences.lines.push_back(name_of(entry) + " is written over what is at offset " + io::spell(offset) +
                                  ", its own is " + std::to_string(entry.offset.count()));
    }
    offset = entry.offset;
    entries.erase(found);
  }
  for (const auto& [key, entry] : entries) {
    differences.lines.push_back(name_of(*entry) + " is no buffer of the plan");
  }
  std::vector<Bytes> offsets;
  for (const std::optional<Bytes>& offset : placed) offsets.push_back(offset.value_or(Bytes()));
  return offsets;
}

}  // namespace

LayoutRecord make_layout_record(const Graph& graph, const Plan& plan, const PlanBuffers& buffers,
                                const LayoutResult& result) {
  LayoutRecord layout;
  layout.graph_name = graph.name;
  layout.graph_hash = graph_hash(graph);
  layout.status = to_string(result.status);
  layout.alignment = buffers.problem.alignment;
  layout.arena = buffers.resident + result.arena;
  layout.resident = buffers.resident;
  layout.pool = result.arena;
  layout.peak = simulate(graph, plan).peak;
  layout.bound = buffers.resident + result.bound.arena;
  for (const PlanPiece& piece : buffers.pieces) {
    layout.buffers.push_back(entry_of(piece, result.offsets[piece.buffer]));
  }
  return layout;
}

LayoutRecord parse_layout(std::string_view text, std::string_view place) {
  LayoutDocument document;
  io::Reader reader(text, place);
  reader.read(document);
  LayoutRecord layout = document.record();
  if (std::string line = reader.unknown_keys(); !line.empty()) layout.warnings.push_back(std::move(line));
  return layout;
}

LayoutRecord load_layout(const std::filesystem::path& path) {
  const std::string text = read_file(path, FileKind::kLayout);
  return parse_layout(text, path.string());
}

std::string format_layout(const LayoutRecord& layout) {
  std::string text = "{\"format\":\"remat.layout\",\"version\":1,\"graph\":";
  text += io::quoted(layout.graph_name);
  text += ",\"graph_hash\":" + io::quoted(layout.graph_hash);
  if (!layout.status.empty()) {
    text += ",\"status\":" + io::quoted(layout.status);
  }
  text += ",\"alignment\":" + std::to_string(layout.alignment) + ",\n\"arena\":" + io::spell(layout.arena) +
          ",\"resident\":" + io::spell(layout.resident) + ",\"pool\":" + io::spell(layout.pool) +
          ",\"peak\":" + io::spell(layout.peak) + ",\"arena_lower_bound\":" + io::spell(layout.bound) +
          ",\n\"buffers\":[";
  for (std::size_t i = 0; i < layout.buffers.size(); ++i) {
    const LayoutEntry& entry = layout.buffers[i];
    text += i == 0 ? "\n{" : ",\n{";
    if (entry.value) text += "\"value\":" + std::to_string(*entry.value) + ",";
    text += "\"first\":" + std::to_string(entry.first) + ",\"end\":" + std::to_string(entry.end) +
            ",\"bytes\":" + std::to_string(entry.bytes.count()) +
            ",\"offset\":" + std::to_string(entry.offset.count()) + "}";
  }
  return text + "]}\n";
}

void save_layout(const LayoutRecord& layout, const std::filesystem::path& path) {
  write_file(path, format_layout(layout), FileKind::kLayout);
}

std::vector<std::string> check_layout_record(const Graph& graph, const Plan& plan,
                                             const LayoutRecord& layout) {
  io::Differences differences("the layout");
  if (!layout.graph_hash.empty()) differences.compare("graph_hash", layout.graph_hash, graph_hash(graph));
  if (!layout.graph_name.empty()) {
    differences.compare("graph", "'" + layout.graph_name + "'", "'" + graph.name + "'");
  }
  const PlanBuffers buffers = plan_buffers(graph, plan, layout.alignment);
  const std::vector<Bytes> offsets = offsets_of(buffers, layout, differences);
  if (!differences.lines.empty()) return differences.lines;
  const Bytes pool = arena_of(buffers.problem, offsets);
  if (const auto violation = validate_layout(buffers.problem, offsets, layout.pool.value_or(pool))) {
    differences.lines.push_back("rule " + std::string(to_string(violation->rule)) + ": " +
                                violation->message);
    return differences.lines;
  }
  const Bytes arena = checked_add(buffers.resident, pool).value_or(pool);
  differences.compare("pool", layout.pool, pool);
  differences.compare("resident", layout.resident, buffers.resident);
  differences.compare("arena", layout.arena, arena);
  differences.compare("peak", layout.peak, simulate(graph, plan).peak);
  differences.bound("arena_lower_bound", layout.bound, arena);
  return differences.lines;
}

}  // namespace remat
