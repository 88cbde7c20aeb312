// Reads and writes whole files atomically.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <tuple>

#include "base/numbers.h"
#include "remat/error.h"
#include "remat/io.h"

namespace remat {
namespace {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  bool close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& path, int error) {
  throw InputError("cannot " + what + " " + path.string() + ": " + std::strerror(error));
}

/// Writes all of the text, or returns an error number.
int write_all(int descriptor, std::string_view text) {
  constexpr std::size_t kPortion = std::size_t{1} << 26;
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), std::min(text.size(), kPortion));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(narrow<std::size_t>(written));
  }
  return 0;
}

/// Writes directly to a device or a pipe, which cannot be replaced.
void write_in_place(const std::filesystem::path& path, std::string_view text) {
  File file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.is_open()) fail("write", path, errno);
  int error = write_all(file.descriptor(), text);
  if (!file.close() && error == 0) error = errno;
  if (error) fail("write", path, error);
}

/// A new file in the folder of `path`. Its name does not contain that of `path`, which may be of full length.
int open_beside(const std::filesystem::path& path, mode_t mode, std::filesystem::path& beside) {
  static std::atomic<std::uint64_t> count{0};
  for (;;) {
    const std::string name = ".remat-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".part";
    beside = path.parent_path() / name;
    const int descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
}

void replace_file(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  if (path.native().empty()) fail("write", path, ENOENT);
  std::filesystem::path beside;
  File file(open_beside(path, mode, beside));
  if (!file.is_open()) fail("write", path, errno);
  int error = write_all(file.descriptor(), text);
  if (!file.close() && error == 0) error = errno;
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error) {
    ::unlink(beside.c_str());
    fail("write", path, error);
  }
}

/// The file that `path` leads to through links, existing or not.
std::filesystem::path target_of(std::filesystem::path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) fail("write", path, error.value());
    path = path.parent_path() / next;  // an absolute link replaces all of it
  }
  return path;
}

/// The identity of a file, whatever its name. Inode numbers are reused, so the time of creation counts too,
/// or the last change if the file system has no creation times.
using Identity = std::tuple<std::uint64_t, std::uint64_t, std::int64_t, std::uint32_t>;

std::optional<Identity> identity(int folder, const char* path, int flags) {
  struct statx about{};
  if (::statx(folder, path, flags, STATX_INO | STATX_BTIME | STATX_MTIME, &about) != 0) return std::nullopt;
  const auto& time = about.stx_mask & STATX_BTIME ? about.stx_btime : about.stx_mtime;
  const auto device = std::uint64_t{about.stx_dev_major} << 32 | about.stx_dev_minor;
  return Identity(device, about.stx_ino, time.tv_sec, time.tv_nsec);
}

/// The files that this process has read.
class Inputs {
 public:
  struct Input {
    FileKind kind;
    std::string path;
  };
  void add(const Identity& file, Input input) {
    const std::scoped_lock lock(mutex_);
    inputs_.insert_or_assign(file, std::move(input));
  }
  std::optional<Input> find(const Identity& file) {
    const std::scoped_lock lock(mutex_);
    const auto at = inputs_.find(file);
    return at == inputs_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  std::mutex mutex_;
  std::map<Identity, Input> inputs_;
};

Inputs& inputs() {
  static Inputs all;
  return all;
}

std::string_view to_string(FileKind kind) {
  switch (kind) {
    case FileKind::kGraph:
      return "graph";
    case FileKind::kPlan:
      return "plan";
    case FileKind::kLayout:
      return "layout";
    case FileKind::kBuffers:
      return "table of buffers";
    case FileKind::kOther:
      break;
  }
  return "file";
}

}  // namespace

void refuse_to_replace_input(const std::filesystem::path& path, FileKind kind) {
  const auto file = identity(AT_FDCWD, path.c_str(), 0);
  const auto input = file ? inputs().find(*file) : std::nullopt;
  if (!input || input->kind == kind) return;
  throw InputError("cannot write " + path.string() + ": it is the " + std::string(to_string(input->kind)) +
                   " that was read from " + input->path);
}

std::string read_file(const std::filesystem::path& path, FileKind kind) {
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) fail("read", path, errno);
  struct stat about{};
  if (::fstat(file.descriptor(), &about) != 0) fail("read", path, errno);
  if (S_ISDIR(about.st_mode)) fail("read", path, EISDIR);
  std::string text;
  std::size_t size = 0;
  // A regular file is read in one piece; one byte more lets the last read see its end.
  std::size_t room = S_ISREG(about.st_mode) ? narrow<std::size_t>(about.st_size) + 1 : 1 << 16;
  for (;;) {
    if (text.size() < size + room) text.resize(size + room);
    const ssize_t got = ::read(file.descriptor(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) break;
    size += narrow<std::size_t>(got);
    room = size == text.size() ? std::max<std::size_t>(size, 1 << 16) : text.size() - size;
  }
  text.resize(size);
  if (S_ISREG(about.st_mode)) {
    if (const auto id = identity(file.descriptor(), "", AT_EMPTY_PATH))
      inputs().add(*id, {kind, path.string()});
  }
  return text;
}

void write_file(const std::filesystem::path& path, std::string_view text, FileKind kind) {
  refuse_to_replace_input(path, kind);
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) {
    if (errno != ENOENT) fail("write", path, errno);
    return replace_file(target_of(path), text, 0666);
  }
  if (S_ISDIR(about.st_mode)) fail("write", path, EISDIR);
  if (!S_ISREG(about.st_mode)) return write_in_place(path, text);
  if (::access(path.c_str(), W_OK) != 0) fail("write", path, errno);
  replace_file(target_of(path), text, about.st_mode & 07777);
}

}  // namespace remat
