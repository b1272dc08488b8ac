// SPDX-License-Identifier: BSD-3-Clause
// A user's own program: the trainer with one more model in its table, which brings a key of its own, and with one more
// source of data, which fails on one rank.
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

#include <atomic>
#include <clocale>
#include <cstdlib>
#include <fstream>
#include <locale>
#include <string>

namespace {

using lockstep::Section;
using lockstep::Task;
namespace batch = lockstep::batch;
namespace data = lockstep::data;
namespace models = lockstep::models;

/// The key had another name in an earlier version of this program, which OLDER_PROGRAM in the environment stands for.
bool is_older() { return std::getenv("OLDER_PROGRAM") != nullptr; }

lockstep::KeySpec scale_key() {
  lockstep::KeySpec key = lockstep::keys::real("model.scale", "1", "factor on the images (scaled)");
  if (is_older()) {
    key.name = "model.factor";
  } else {
    key.old_names = {"model.factor"};
  }
  return key;
}

class Scaled : public models::Model {
 public:
  Scaled(const Section& model, const Task& task) : scale_(model.real(is_older() ? "factor" : "scale")) {
    head_ = register_module("head", std::make_shared<models::Linear>(28 * 28, task.classes));
  }
  at::Tensor forward(const at::Tensor& images) override { return models::run(*head_, images.flatten(1) * scale_); }

 private:
  double scale_;
  std::shared_ptr<models::Linear> head_;
};

std::shared_ptr<models::Model> make_scaled(const Section& model, const Task& task) {
  return std::make_shared<Scaled>(model, task);
}

/// Another data set, of which rank 1 cannot read the fifth batch. When it fails it makes the file `stamp`.
class Fragile : public data::Dataset {
 public:
  Fragile(std::shared_ptr<const data::Dataset> inner, std::string stamp)
      : inner_(std::move(inner)), stamp_(std::move(stamp)) {}
  std::int64_t size() const override { return inner_->size(); }
  Task task() const override { return inner_->task(); }
  std::uint64_t digest() const override { return inner_->digest(); }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (++batches_ == 5 && rank != nullptr && std::string(rank) == "1") {
      std::ofstream(stamp_).flush();
      throw lockstep::DataError("shard 1", "cannot be read any more");
    }
    return inner_->get(draws);
  }

 private:
  std::shared_ptr<const data::Dataset> inner_;
  std::string stamp_;
  mutable std::atomic<int> batches_ = 0;
};

data::Splits open_fragile(const Section& section) {
  data::Splits splits = data::builtin_sources().front().open(section);
  splits.train = std::make_shared<Fragile>(splits.train, section.text("path"));
  return splits;
}

}  // namespace

namespace {

struct CommaPunctuation : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// LOCKSTEP_TEST_LOCALE: "cpp" = the C++ locale has a decimal comma; another name = that locale of the C library.
void set_locale() {
  const char* const name = std::getenv("LOCKSTEP_TEST_LOCALE");
  if (name == nullptr) return;
  if (std::string(name) == "cpp") {
    std::locale::global(std::locale(std::locale::classic(), new CommaPunctuation));
  } else if (std::setlocale(LC_ALL, name) == nullptr) {
    std::exit(99);
  }
}

}  // namespace

int main(int argc, char** argv) {
  set_locale();
  lockstep::engine::Registry registry;
  registry.models.push_back(
      {.name = "scaled", .help = "one linear layer on scaled images", .keys = {scale_key()}, .make = make_scaled});
  registry.sources.push_back(
      {.name = "fragile", .help = "the first source, until it fails", .keys = {}, .open = open_fragile});
  lockstep::trainer::run(argc, argv, registry);
}
