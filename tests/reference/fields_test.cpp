// SPDX-License-Identifier: BSD-3-Clause
// Arrays in files of other programs, and what is made of them: each file of the topic has its own test file.
#include "fields.hpp"

#include <gtest/gtest.h>

namespace lockstep::testing::reference {
namespace fields_test {

/// Files beside the arrays, which tests of other files read.
Handler input(const std::string& file, const std::vector<std::string>& fields) {
  return {.file = file, .extra_fields = fields};
}

TEST(ReferenceFields, EveryFile) {
  run_topic("fields",
            {
                {.file = "files.json", .extra_fields = {"times"}, .run = run_files_case},
                // a file of ReferenceFieldLosses
                {.file = "losses.json",
                 .extra_fields = {"losses", "well_metrics", "weatherbench", "masked", "weighted", "pdebench"}},
                {.file = "malformed.json", .run = run_malformed_case},
                {.file = "rollout.json", .extra_fields = {"formula", "salt"}, .run = run_rollout_case},
                {.file = "statistics.json",
                 .extra_fields = {"the_well_items", "the_well_stats", "std_floor", "climsim", "deepcam", "makani",
                                  "netcdf_time"},
                 .run = run_statistics_case},
                {.file = "windows.json", .extra_fields = {"counts", "pdebench_split"}, .run = run_windows_case},
                field_models(),
                input("files/makani/data.json", {"dataset_name", "h5_path", "dhours", "attrs", "dims", "coords"}),
            });
}

TEST(ReferenceFields, Times) { check_times(); }

TEST(ReferenceFields, ItemsOfTheWell) { check_well_items(); }

TEST(ReferenceFields, GivenStatistics) { check_given_statistics(); }

TEST(ReferenceFields, WindowCounts) { check_window_counts(); }

TEST(ReferenceFields, SplitsOfPdebench) { check_pdebench_splits(); }

}  // namespace fields_test
}  // namespace lockstep::testing::reference
