// SPDX-License-Identifier: BSD-3-Clause
// One run at a time writes to a folder of checkpoints.
#include "checkpoints/store/lease.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace lease_test {

namespace fs = std::filesystem;

std::string host_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// A process that lives as long as this object.
class Child {
 public:
  Child() : process_(::fork()) {
    if (process_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Child() { end(); }
  void end() {
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    ended_ = std::exchange(process_, 0);
  }
  pid_t number() const { return process_ == 0 ? ended_ : process_; }

 private:
  pid_t process_;
  pid_t ended_ = 0;
};

class LeaseTest : public ::testing::Test {
 protected:
  ~LeaseTest() override { ::unsetenv("SLURM_JOB_ID"); }

  void put_lease(const std::string& host, pid_t process, const std::string& job = "") const {
    put_bytes(file_,
              "host " + host + "\nprocess " + std::to_string(process) + "\n" + (job.empty() ? "" : "job " + job));
  }

  std::string error_of_taking() const {
    return error_of([&] { const Lease lease(directory_.path(), std::chrono::seconds(0)); });
  }

  TemporaryFolder directory_;
  std::string file_ = directory_ / "LEASE";
};

TEST_F(LeaseTest, IsThereWhileItIsHeld) {
  {
    const Lease lease(directory_ / "new/ckpt");
    EXPECT_EQ(lease.taken_from(), "");
    EXPECT_TRUE(fs::exists(directory_ / "new/ckpt/LEASE"));
  }
  EXPECT_FALSE(fs::exists(directory_ / "new/ckpt/LEASE"));
}

TEST_F(LeaseTest, OfALiveProcessIsRespectedAndOfADeadOneTakenOver) {
  Child other;
  put_lease(host_name(), other.number());
  EXPECT_EQ(error_of_taking(), file_ + ": another run writes checkpoints to this folder: process " +
                                   std::to_string(other.number()) + " on " + host_name() +
                                   ", last active 0 s ago; stop it, or choose another --run.dir");
  EXPECT_TRUE(fs::exists(file_));
  other.end();
  const Lease lease(directory_.path());
  EXPECT_EQ(lease.taken_from(), "process " + std::to_string(other.number()) + " on " + host_name());
}

TEST_F(LeaseTest, OfAProcessThatIsAboutToEndIsWaitedFor) {
  Child other;
  put_lease(host_name(), other.number());
  std::thread end([&other] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    other.end();
  });
  EXPECT_EQ(error_of([&] { const Lease lease(directory_.path()); }), "");
  end.join();
}

TEST_F(LeaseTest, OfAZombieIsTakenOver) {
  const pid_t zombie = ::fork();
  if (zombie == 0) ::_exit(0);
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT), 0);  // it has ended and stays
  put_lease(host_name(), zombie);
  EXPECT_EQ(error_of_taking(), "");
  ::waitpid(zombie, nullptr, 0);
}

TEST_F(LeaseTest, OfAnotherHostIsJudgedByItsAge) {
  put_lease("elsewhere", 1);
  EXPECT_NE(error_of_taking(), "");
  fs::last_write_time(file_, fs::file_time_type::clock::now() - std::chrono::minutes(11));
  EXPECT_EQ(error_of_taking(), "");
}

TEST_F(LeaseTest, OfAnEarlierStartOfThisJobIsTakenOver) {
  ::setenv("SLURM_JOB_ID", "4711", 1);
  put_lease("elsewhere", 1, "4712");
  EXPECT_NE(error_of_taking().find("(Slurm job 4712)"), std::string::npos);
  put_lease("elsewhere", 1, "4711");
  EXPECT_EQ(error_of_taking(), "");
}

TEST_F(LeaseTest, NonsenseIsNoHolder) {
  const std::string here = "\nhost " + host_name();
  for (const std::string& text : {std::string(), std::string("host"), "process x" + here, "process -1" + here}) {
    put_bytes(file_, text);
    fs::last_write_time(file_, fs::file_time_type::clock::now() - std::chrono::minutes(11));
    EXPECT_EQ(error_of_taking(), "") << text;
  }
}

TEST_F(LeaseTest, HasAHolderWheneverItIsThere) {
  for (int i = 0; i < 40; ++i) {
    const pid_t other = ::fork();
    if (other == 0) {
      while (true) const Lease lease(directory_.path(), std::chrono::seconds(0));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3) + std::chrono::microseconds(137 * i));
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    EXPECT_EQ(error_of_taking(), "") << i;
  }
}

TEST_F(LeaseTest, AnothersIsNotGivenBack) {
  {
    const Lease lease(directory_.path());
    put_lease("elsewhere", 1);
  }
  EXPECT_TRUE(fs::exists(file_));
}

}  // namespace lease_test
}  // namespace lockstep::checkpoints
