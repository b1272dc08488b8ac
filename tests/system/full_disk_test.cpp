// SPDX-License-Identifier: BSD-3-Clause
// A run whose disk fills up continues, loses no checkpoint, and saves again once there is room.
#include <gtest/gtest.h>

#include <unistd.h>

#include "support/program.hpp"

namespace lockstep {
namespace full_disk_test {

// The checkpoints lie on a tmpfs of 700 kB that only this shell sees: about six of them.
const char* const kScript = R"sh(
log=$run.log
mkdir -p "$run/ckpt" && mount -t tmpfs -o size=700k none "$run/ckpt" || exit 99
"$@" --run.dir="$run" >"$log" 2>&1 &
wait_for() { # COUNT WORDS: that many lines of the log hold them
  until (($(grep -c "$2" "$log") >= $1)); do kill -0 %1 2>/dev/null || { cat "$log" && exit 98; }; sleep 0.05; done
}
wait_for 1 ' saved '
cat /dev/zero >"$run/ckpt/filler" 2>/dev/null
wait_for 2 'training continues without this checkpoint'
$ckpt verify --all "$run" >/dev/null || exit 97
touch "$run/STOP"
rm "$run/ckpt/filler"
wait %1
code=$?
ls -A "$run/ckpt" | grep -vE '^(step-[0-9]{12}|LATEST)$'
grep 'without this checkpoint' "$log" | head -n 1
$ckpt verify --all "$run" || exit 96
exit $code
)sh";

TEST(FullDiskTest, TheRunContinuesAndSavesAgain) {
  const std::string unshare = ::geteuid() == 0 ? "unshare -m" : "unshare -rm";
  if (testing::run_shell(unshare + " true").exit_code != 0) GTEST_SKIP() << "no private mount is allowed here";
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "script.sh", kScript);
  const testing::ProgramResult outcome = testing::run_shell(
      "run='" + (folder / "run") + "' ckpt=" + testing::ckpt_program() +
          " OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + unshare + " bash '" + (folder / "script.sh") +
          "' " + testing::mpirun_command(2) + " " + testing::trainer_program() +
          " --data.train_size=480 --model.name=mlp --model.hidden=8 --train.max_steps=1000000" +
          " --ckpt.every=200 --ckpt.keep_last=2 --ckpt.max_failures=1000",
      100);
  if (outcome.exit_code == 99) GTEST_SKIP() << "no private mount is allowed here";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_FALSE(outcome.output.starts_with(".")) << "left behind: " << outcome.output;
  EXPECT_NE(outcome.output.find("No space left on device ("), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("BAD"), std::string::npos) << outcome.output;
}

}  // namespace full_disk_test
}  // namespace lockstep
