// Side jobs: waited for, stopped, abandoned.
#include "base/side_job.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "remat/left_behind.h"

namespace remat {
namespace {

constexpr auto kWhile = std::chrono::milliseconds(1);

/// Shared by both threads; the job owns it too.
struct Shared {
  std::atomic<bool> told_to_stop = false, may_end = false, ended = false;
};

TEST(SideJob, EndsBeforeTheCallerGoesOn) {
  const auto shared = std::make_shared<Shared>();
  Limits limits;
  EXPECT_TRUE(run_beside({.work = [shared] { shared->ended = true; }, .stop = [] {}}, limits));
  EXPECT_TRUE(shared->ended);
  EXPECT_FALSE(work_is_left_behind());
}

TEST(SideJob, HandsItsExceptionToTheCaller) {
  Limits limits;
  const SideJob job{.work = [] { throw std::runtime_error("singular basis"); }, .stop = [] {}};
  EXPECT_THROW(run_beside(job, limits), std::runtime_error);
}

TEST(SideJob, IsToldToStopOnceAndWaitedForWhereItDoes) {
  const auto shared = std::make_shared<Shared>();
  int stops = 0;
  Limits limits;
  limits.set_work(0);
  const SideJob job{.work =
                        [shared] {
                          while (!shared->told_to_stop) std::this_thread::sleep_for(kWhile);
                          shared->ended = true;
                        },
                    .stop =
                        [&] {
                          ++stops;
                          shared->told_to_stop = true;
                        }};
  // A busy machine may take longer to end it than the caller waits.
  if (run_beside(job, limits)) {
    EXPECT_TRUE(shared->ended);
  }
  EXPECT_EQ(stops, 1);
  while (work_is_left_behind()) std::this_thread::sleep_for(kWhile);
}

TEST(SideJob, IsLeftBehindWhereItDoesNotStop) {
  const auto shared = std::make_shared<Shared>();
  Limits limits;
  limits.set_work(0);
  const SideJob job{.work =
                        [shared] {
                          while (!shared->may_end) std::this_thread::sleep_for(kWhile);
                          shared->ended = true;
                        },
                    .stop = [] {}};
  EXPECT_FALSE(run_beside(job, limits));
  EXPECT_TRUE(work_is_left_behind());
  EXPECT_FALSE(shared->ended);
  shared->may_end = true;
  while (work_is_left_behind()) std::this_thread::sleep_for(kWhile);
  EXPECT_TRUE(shared->ended);
}

}  // namespace
}  // namespace remat
