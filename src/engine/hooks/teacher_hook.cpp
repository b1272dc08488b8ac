// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>

#include <utility>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

class TeacherHook : public Hook {
 public:
  explicit TeacherHook(std::string digest) : digest_(std::move(digest)) {}

  bool reads_report(const Progress&) const override { return false; }

  std::string state_name() const override { return "teacher"; }

  void save_state(checkpoints::Archive& archive, const std::string& group) const override {
    archive.set(group, "digest", digest_);
  }

  void load_state(const checkpoints::Archive& archive, const std::string& group) override {
    if (archive.text(group, "digest") == digest_) return;
    throw CheckpointError(archive.origin(), group,
                          "the run had a teacher with other weights; set distill.from to the same weights, or start a "
                          "new run with init.from");
  }

 private:
  std::string digest_;
};

}  // namespace

std::unique_ptr<Hook> teacher_hook(std::string digest) { return std::make_unique<TeacherHook>(std::move(digest)); }

}  // namespace lockstep::engine
