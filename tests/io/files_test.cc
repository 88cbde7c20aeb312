#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "helpers/graphs.h"
#include "remat/error.h"
#include "remat/io.h"

namespace remat {
namespace {

namespace fs = std::filesystem;

/// An empty folder of one test.
class Files : public ::testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "remat_files_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  template <class F>
  static std::string error_of(F&& action) {
    try {
      action();
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }
  fs::path folder_;
};

TEST_F(Files, ComeBackAsWritten) {
  const fs::path path = folder_ / "a";
  const std::string text("a\0b\n\xff", 5);
  write_file(path, text);
  EXPECT_EQ(read_file(path), text);
  write_file(path, "");
  EXPECT_EQ(read_file(path), "");
  EXPECT_EQ(listing(), std::vector<std::string>{"a"});
}

TEST_F(Files, LargerThanAPipeBufferAreReadWhole) {
  std::string text;
  for (int i = 0; i < 300000; ++i) text += std::to_string(i);
  write_file(folder_ / "a", text);
  EXPECT_EQ(read_file(folder_ / "a"), text);
}

TEST_F(Files, AreReplacedThroughLinksAndKeepTheirMode) {
  write_file(folder_ / "real", "old");
  ::chmod((folder_ / "real").c_str(), 0600);
  fs::create_symlink("real", folder_ / "link");
  write_file(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "real"), "new");
  EXPECT_EQ(fs::status(folder_ / "real").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Files, ALinkToNothingIsFollowedAndStaysALink) {
  fs::create_directory(folder_ / "sub");
  fs::create_symlink("sub/real", folder_ / "link");
  fs::create_symlink(folder_ / "link", folder_ / "first");
  write_file(folder_ / "first", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "first"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "sub/real"), "new");
}

TEST_F(Files, ALinkToItselfIsNamed) {
  fs::create_symlink("loop", folder_ / "loop");
  const std::string loop = (folder_ / "loop").string();
  EXPECT_EQ(error_of([&] { write_file(loop, "x"); }),
            "cannot write " + loop + ": Too many levels of symbolic links");
}

TEST_F(Files, ANameMayBeAsLongAsTheSystemTakes) {
  const fs::path path = folder_ / std::string(250, 'n');
  write_file(path, "first");
  write_file(path, "second");
  EXPECT_EQ(read_file(path), "second");
  EXPECT_EQ(listing(), std::vector<std::string>{std::string(250, 'n')});
}

TEST_F(Files, AnEmptyNameIsRefused) {
  EXPECT_EQ(error_of([] { write_file("", "x"); }), "cannot write : No such file or directory");
}

TEST_F(Files, WhatWasReadIsNotReplacedByAnotherKind) {
  const Graph graph = testing::training_chain(3);
  const std::string g = (folder_ / "g").string();
  save_graph(graph, g);
  const std::string text = read_file(g);
  EXPECT_EQ(load_graph(g).graph, graph);
  fs::create_symlink("g", folder_ / "soft");
  fs::create_hard_link(g, folder_ / "hard");
  PlanRecord plan;
  plan.steps = {0, 1, 2};
  for (const fs::path& name : {folder_ / "g", folder_ / "soft", folder_ / "hard", folder_ / "." / "g"}) {
    EXPECT_EQ(error_of([&] { save_plan(plan, name); }),
              "cannot write " + name.string() + ": it is the graph that was read from " + g);
  }
  EXPECT_EQ(read_file(g, FileKind::kGraph), text);
  save_graph(graph, g);  // one graph over another is what `remat convert` is for
  save_plan(plan, folder_ / "p");
  load_plan(folder_ / "p");
  EXPECT_NE(error_of([&] { save_graph(graph, folder_ / "p"); }), "no error");
}

TEST_F(Files, ANewFileWithTheNumberOfAnOldInputIsNotThatInput) {
  const Graph graph = testing::training_chain(3);
  PlanRecord plan;
  plan.steps = {0, 1, 2};
  for (int i = 0; i < 20; ++i) {
    save_graph(graph, folder_ / "g");
    load_graph(folder_ / "g");
    fs::remove(folder_ / "g");
    write_file(folder_ / "other", "text");
    EXPECT_EQ(error_of([&] { save_plan(plan, folder_ / "other"); }), "no error");
    fs::remove(folder_ / "other");
  }
}

TEST_F(Files, AFullDeviceIsNamedAndNotReplaced) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  EXPECT_EQ(error_of([] { write_file("/dev/full", "text"); }),
            "cannot write /dev/full: No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

/// Writes beyond `bytes` fail as on a full disk for as long as this lives.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(Files, AWriteThatStopsHalfwayLeavesTheOldFileAndNoOther) {
  const fs::path path = folder_ / "a";
  write_file(path, "old");
  std::string message;
  {
    const SmallDisk disk(1000);
    message = error_of([&] { write_file(path, std::string(5000, 'x')); });
  }
  EXPECT_EQ(message, "cannot write " + path.string() + ": File too large");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(listing(), std::vector<std::string>{"a"});
}

TEST_F(Files, PlacesThatCannotBeWrittenAreNamed) {
  write_file(folder_ / "a", "old");
  const std::string under = (folder_ / "a" / "b").string(), missing = (folder_ / "no" / "b").string();
  EXPECT_EQ(error_of([&] { write_file(under, "x"); }), "cannot write " + under + ": Not a directory");
  EXPECT_EQ(error_of([&] { write_file(missing, "x"); }),
            "cannot write " + missing + ": No such file or directory");
  EXPECT_EQ(error_of([&] { write_file(folder_, "x"); }),
            "cannot write " + folder_.string() + ": Is a directory");
  EXPECT_EQ(listing(), std::vector<std::string>{"a"});
}

TEST_F(Files, PlacesThatCannotBeReadAreNamed) {
  const std::string missing = (folder_ / "no").string();
  EXPECT_EQ(error_of([&] { load_graph(missing); }), "cannot read " + missing + ": No such file or directory");
  EXPECT_EQ(error_of([&] { load_graph(folder_); }), "cannot read " + folder_.string() + ": Is a directory");
  EXPECT_EQ(error_of([&] { load_plan(missing); }), "cannot read " + missing + ": No such file or directory");
}

TEST_F(Files, GraphsAndPlansGoThroughThem) {
  const Graph graph = testing::training_chain(3);
  save_graph(graph, folder_ / "g");
  EXPECT_EQ(load_graph(folder_ / "g").graph, graph);
  PlanRecord plan;
  plan.steps = {0, 1, 2};
  save_plan(plan, folder_ / "p");
  EXPECT_EQ(load_plan(folder_ / "p").steps, plan.steps);
}

}  // namespace
}  // namespace remat
