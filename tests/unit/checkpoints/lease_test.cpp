// SPDX-License-Identifier: BSD-3-Clause
// One run at a time writes to a folder of checkpoints.
#include "checkpoints/store/lease.hpp"

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

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
  ~LeaseTest() override {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME"}) ::unsetenv(name);
    ::setenv("PATH", path_.c_str(), 1);
  }

  /// A squeue that answers so.
  void put_squeue(const std::string& script) const {
    const std::string program = directory_ / "squeue";
    put_bytes(program, "#!/bin/sh\n" + script + "\n");
    fs::permissions(program, fs::perms::owner_all);
    ::setenv("PATH", (directory_.path() + ":" + path_).c_str(), 1);
  }

  /// Writes the lease of an object as if another process of this host held it.
  void put_holder(const LeaseHolder& holder) const { put_bytes(file_, holder.text()); }
  LeaseHolder holder_like_me(pid_t process) const {
    LeaseHolder holder = this_holder();
    holder.process = std::to_string(process);
    holder.started = "";
    return holder;
  }

  void put_lease(const std::string& host, pid_t process, const std::string& job = "") const {
    put_bytes(file_,
              "host " + host + "\nprocess " + std::to_string(process) + "\n" + (job.empty() ? "" : "job " + job));
  }

  std::string error_of_taking() const {
    return error_of([&] { const Lease lease(directory_.path(), std::chrono::seconds(0)); });
  }

  TemporaryFolder directory_;
  std::string file_ = directory_ / "LEASE";
  std::string path_ = ::getenv("PATH");
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

TEST_F(LeaseTest, OfAProcessOnAnotherHostThatIsKnownToHaveEndedIsRemoved) {
  put_lease("elsewhere", 1);
  const std::string holder = read_holder(file_).text();
  put_lease("elsewhere", 2);
  end_lease(directory_.path(), holder);
  EXPECT_NE(error_of_taking(), "");  // it has another holder now
  put_lease("elsewhere", 1);
  end_lease(directory_.path(), holder);
  EXPECT_FALSE(fs::exists(file_));
  EXPECT_EQ(error_of_taking(), "");
  end_lease(directory_.path(), holder);  // there may be none
}

TEST_F(LeaseTest, OfAnEarlierStartOfThisJobIsTakenOver) {
  ::setenv("SLURM_JOB_ID", "4711", 1);
  put_squeue("echo RUNNING");
  put_lease("elsewhere", 1, "4712");
  EXPECT_NE(error_of_taking().find("(Slurm job 4712)"), std::string::npos);
  put_lease("elsewhere", 1, "4711");
  EXPECT_NE(error_of_taking().find("(Slurm job 4711)"), std::string::npos);  // another step of this start
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_EQ(error_of_taking(), "");
}

TEST_F(LeaseTest, OfALiveProcessIsRespectedWhateverItsJobAndHostNameAre) {
  Child other;
  ::setenv("SLURM_JOB_ID", "4711", 1);
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  put_squeue("exit 0");
  LeaseHolder holder = holder_like_me(other.number());
  holder.restarts = 0;
  put_holder(holder);
  EXPECT_NE(error_of_taking(), "");
  holder.host = "renamed";
  put_holder(holder);
  fs::last_write_time(file_, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_NE(error_of_taking(), "");
  other.end();
  EXPECT_EQ(error_of_taking(), "");
}

TEST_F(LeaseTest, AProcessOfAnotherStartOrSystemIsNotTheHolder) {
  Child other;
  LeaseHolder holder = holder_like_me(other.number());
  holder.started = "1";  // the number is used again
  put_holder(holder);
  EXPECT_EQ(error_of_taking(), "");
  holder = holder_like_me(other.number());
  other.end();
  holder.system = "another-boot";  // it may live in another container of the same host name
  put_holder(holder);
  EXPECT_NE(error_of_taking().find("wait 60"), std::string::npos);
}

TEST_F(LeaseTest, AJobThatSqueueDoesNotListHasEnded) {
  struct Case {
    const char* script;
    bool is_taken;
    const char* words;
  };
  for (const auto& [script, is_taken, words] :
       {Case{"exit 0", true, ""}, Case{"echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", true, ""},
        Case{"echo PENDING", true, ""}, Case{"echo COMPLETED", true, ""},
        Case{"echo RUNNING", false, "if it has ended, wait 60"},
        Case{"echo SUSPENDED", false, "Slurm has suspended this job"},
        Case{"echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", false, "wait 60"}}) {
    put_squeue(script);
    put_lease("elsewhere", 1, "41");
    const std::string error = error_of_taking();
    EXPECT_EQ(error.empty(), is_taken) << script << error;
    EXPECT_NE(error.find(words), std::string::npos) << error;
  }
  put_squeue("exit 0");
  put_bytes(file_, "host elsewhere\nprocess 1\njob 41\ncluster other\n");
  EXPECT_NE(error_of_taking(), "") << "squeue knows the jobs of its own cluster only";
}

TEST_F(LeaseTest, ALeaseFromTheFutureIsSaidToBeOne) {
  put_lease("elsewhere", 1);
  fs::last_write_time(file_, fs::file_time_type::clock::now() + std::chrono::hours(2));
  const std::string error = error_of_taking();
  EXPECT_NE(error.find(" s in the future; "), std::string::npos) << error;
  EXPECT_EQ(error.find("active -"), std::string::npos) << error;
  EXPECT_NE(error.find("if it has ended, delete the file LEASE"), std::string::npos) << error;
}

TEST_F(LeaseTest, AnEmptyOneNamesNoRun) {
  put_bytes(file_, "");
  const Lease lease(directory_.path(), std::chrono::seconds(0));
  EXPECT_EQ(lease.taken_from(), "a file LEASE that names no run");
}

TEST_F(LeaseTest, IsRenewedByTimeAndWrittenAgainAfterItWasDeleted) {
  const Lease lease(directory_.path(), std::chrono::seconds(0), std::chrono::milliseconds(20));
  const auto is_soon = [](const auto& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
  };
  const auto past = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(file_, past);
  EXPECT_TRUE(is_soon([&] { return fs::last_write_time(file_) > past + std::chrono::minutes(30); }));
  fs::remove(file_);
  EXPECT_TRUE(is_soon([&] { return fs::exists(file_); }));
  EXPECT_FALSE(lease.is_lost());
  put_lease("elsewhere", 1);
  EXPECT_TRUE(is_soon([&] { return lease.is_lost(); }));
}

TEST_F(LeaseTest, ThatWasTakenOverIsReported) {
  Lease lease(directory_.path());
  lease.require();
  put_lease("elsewhere", 1);
  EXPECT_EQ(error_of([&] { lease.require(); }),
            file_ +
                ": another run has taken over this folder: process 1 on elsewhere; this run ends without another "
                "checkpoint");
}

// All of them see the same dead holder; only one may take its place.
TEST_F(LeaseTest, OneOfSeveralProcessesThatStartAtOnceGetsIt) {
  for (int round = 0; round < 10; ++round) {
    put_lease(host_name(), 999999999);
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      bool is_taken = false;
      try {
        const Lease lease(directory_.path(), std::chrono::seconds(0));
        is_taken = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      } catch (const CheckpointError&) {
      }
      ::_exit(is_taken ? 1 : 0);
    }
    int holders = 0;
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      holders += WEXITSTATUS(status);
    }
    EXPECT_EQ(holders, 1) << round;
  }
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
