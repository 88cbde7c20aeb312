// Whole files in and out, as one step each.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

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

/// Everything or an error number.
int write_all(int descriptor, std::string_view text) {
  constexpr std::size_t kPortion = std::size_t{1} << 26;
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), std::min(text.size(), kPortion));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// A device or a pipe has nothing to be replaced: it takes the text as it comes.
void write_in_place(const std::filesystem::path& path, std::string_view text) {
  File file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.is_open()) fail("write", path, errno);
  int error = write_all(file.descriptor(), text);
  if (!file.close() && error == 0) error = errno;
  if (error) fail("write", path, error);
}

void replace_file(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  const std::string beside = path.string() + ".part" + std::to_string(::getpid());
  File file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!file.is_open()) fail("write", path, errno);
  int error = write_all(file.descriptor(), text);
  if (!file.close() && error == 0) error = errno;
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error) {
    ::unlink(beside.c_str());
    fail("write", path, error);
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) fail("read", path, errno);
  struct stat about{};
  if (::fstat(file.descriptor(), &about) != 0) fail("read", path, errno);
  if (S_ISDIR(about.st_mode)) fail("read", path, EISDIR);
  std::string text;
  std::size_t size = 0;
  // A regular file is read in one piece; one byte more lets the last read see its end.
  std::size_t room = S_ISREG(about.st_mode) ? static_cast<std::size_t>(about.st_size) + 1 : 1 << 16;
  for (;;) {
    if (text.size() < size + room) text.resize(size + room);
    const ssize_t got = ::read(file.descriptor(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
    room = size == text.size() ? std::max<std::size_t>(size, 1 << 16) : text.size() - size;
  }
  text.resize(size);
  return text;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) {
    if (errno != ENOENT) fail("write", path, errno);
    return replace_file(path, text, 0666);
  }
  if (S_ISDIR(about.st_mode)) fail("write", path, EISDIR);
  if (!S_ISREG(about.st_mode)) return write_in_place(path, text);
  if (::access(path.c_str(), W_OK) != 0) fail("write", path, errno);
  // Through links: the file that is meant is replaced, not the link to it.
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) fail("write", path, error.value());
  replace_file(real, text, about.st_mode & 07777);
}

}  // namespace remat
