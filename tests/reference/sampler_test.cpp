// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>

#include <gtest/gtest.h>

#include "data/order.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace sampler_test {

using data::Sampler;
using List = std::vector<std::int64_t>;
using Lists = std::vector<List>;

/// Epochs given as lists of one length, here of another library's generator.
class Given : public data::Order {
 public:
  explicit Given(Lists epochs) : epochs_(std::move(epochs)) {}
  std::int64_t length() const override { return static_cast<std::int64_t>(epochs_.front().size()); }
  List indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const override {
    const List& list = epochs_.at(static_cast<std::size_t>(epoch));
    return {list.begin() + begin, list.begin() + begin + count};
  }

 private:
  Lists epochs_;
};

/// Successive permutations of one generator: the stream of an infinite sampler.
data::OrderPtr passes(std::int64_t size, std::uint64_t seed, std::int64_t count, bool shuffle = true) {
  data::TorchGenerator generator(seed);
  Lists lists;
  for (std::int64_t i = 0; i < count; ++i) {
    lists.push_back(shuffle ? generator.permutation(size) : data::sequential_order(size)->indices(0, 0, size));
  }
  return std::make_shared<Given>(lists);
}

/// The samples that a rank gets of `steps` steps, with one sample per rank and step.
List of_rank(const Sampler& sampler, std::int64_t rank, std::int64_t first_step, std::int64_t steps) {
  List list;
  const std::int64_t per_epoch = sampler.steps_per_epoch();
  for (std::int64_t step = first_step; step < first_step + steps; ++step) {
    for (const std::int64_t index : sampler.indices(step / per_epoch, step % per_epoch, {rank, 1})) {
      list.push_back(index);
    }
  }
  return list;
}

List of_epoch(const Sampler& sampler, std::int64_t rank, std::int64_t epoch) {
  return of_rank(sampler, rank, epoch * sampler.steps_per_epoch(), sampler.steps_per_epoch());
}

void expect_epochs(const Json& one_case, data::Remainder remainder) {
  const std::int64_t length = one_case.at("length");
  const std::int64_t world_size = one_case.at("world_size");
  const data::OrderPtr order = one_case.at("shuffle").get<bool>()
                                   ? data::torch_order(length, one_case.at("seed").get<std::uint64_t>())
                                   : data::sequential_order(length);
  for (const Json& epoch : one_case.at("epochs")) {
    require_known_fields(epoch, {"epoch", "permutation", "ranks", "len"});
    EXPECT_EQ(order->indices(epoch.at("epoch"), 0, length), epoch.at("permutation").get<List>());
    const Json& ranks = epoch.at("ranks");
    if (remainder == data::Remainder::drop && length < world_size) {  // all ranks get nothing there, an error here
      EXPECT_THROW(Sampler(order, world_size, remainder), ConfigError);
      for (const Json& rank : ranks) EXPECT_TRUE(rank.empty());
      continue;
    }
    const Sampler sampler(order, world_size, remainder);
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      const List expected = ranks.at(static_cast<std::size_t>(rank));
      EXPECT_EQ(of_epoch(sampler, rank, epoch.at("epoch")), expected) << "rank " << rank;
      if (!epoch.contains("len")) continue;
      EXPECT_EQ(epoch.at("len").at(static_cast<std::size_t>(rank)), expected.size());
    }
  }
}

void run_distributed(const Json& one_case) {
  require_known_fields(one_case, {"length", "world_size", "shuffle", "drop_last", "seed", "epochs"});
  const bool drops = one_case.at("drop_last");
  expect_epochs(one_case, drops ? data::Remainder::drop : data::Remainder::repeat);
}

void run_default(const Json& one_case) {
  require_known_fields(one_case, {"length", "world_size", "shuffle", "round_up", "seed", "epochs"});
  const bool rounds_up = one_case.at("round_up");
  expect_epochs(one_case, rounds_up ? data::Remainder::repeat : data::Remainder::keep);
}

void expect_stream(const data::OrderPtr& order, const Lists& ranks) {
  const Sampler sampler(order, static_cast<std::int64_t>(ranks.size()), data::Remainder::carry);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto steps = static_cast<std::int64_t>(ranks[rank].size());
    EXPECT_EQ(of_rank(sampler, static_cast<std::int64_t>(rank), 0, steps), ranks[rank]) << "rank " << rank;
    // The rest from the middle: nothing but the position is needed.
    const List rest(ranks[rank].begin() + steps / 2, ranks[rank].end());
    EXPECT_EQ(of_rank(sampler, static_cast<std::int64_t>(rank), steps / 2, steps - steps / 2), rest);
  }
}

void run_infinite(const Json& one_case) {
  require_known_fields(one_case, {"length", "world_size", "shuffle", "seed", "len", "permutations_of_successive_passes",
                                  "first_3N_of_each_rank"});
  const Lists expected = one_case.at("permutations_of_successive_passes");
  const auto count = static_cast<std::int64_t>(expected.size());
  const std::int64_t length = one_case.at("length");
  const data::OrderPtr order =
      passes(length, one_case.at("seed").get<std::uint64_t>(), count, one_case.at("shuffle").get<bool>());
  for (std::int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(order->indices(i, 0, length), expected.at(static_cast<std::size_t>(i)));
  }
  EXPECT_EQ(order->length(), one_case.at("len"));
  expect_stream(order, one_case.at("first_3N_of_each_rank"));
}

void run_training(const Json& one_case) {
  require_known_fields(one_case, {"size", "world_size", "seed", "first_20_of_each_rank"});
  const std::int64_t size = one_case.at("size");
  const std::int64_t world_size = one_case.at("world_size");
  expect_stream(passes(size, one_case.at("seed").get<std::uint64_t>(), 20 * world_size / size + 1),
                one_case.at("first_20_of_each_rank"));
}

void run_inference(const Json& one_case) {
  require_known_fields(one_case, {"size", "world_size", "ranks"});
  const std::int64_t size = one_case.at("size");
  const int world_size = one_case.at("world_size");
  if (one_case.at("ranks").is_string()) {
    EXPECT_THROW(data::inference_indices(size, 0, world_size), DataError) << one_case.at("ranks");
    return;
  }
  for (int rank = 0; rank < world_size; ++rank) {
    EXPECT_EQ(data::inference_indices(size, rank, world_size),
              one_case.at("ranks").at(static_cast<std::size_t>(rank)).get<List>());
  }
}

/// The epochs of that generator one after the other, as one long epoch: their lengths differ.
List repeat_factor_stream(const std::vector<double>& factors, std::uint64_t seed, std::size_t length) {
  data::TorchGenerator generator(seed);
  List stream;
  while (stream.size() < length) {
    const List counts = data::repeated(factors, generator.uniform(static_cast<std::int64_t>(factors.size())));
    List copies;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      copies.insert(copies.end(), static_cast<std::size_t>(counts[i]), static_cast<std::int64_t>(i));
    }
    for (const std::int64_t place : generator.permutation(static_cast<std::int64_t>(copies.size()))) {
      stream.push_back(copies[static_cast<std::size_t>(place)]);
    }
  }
  return stream;
}

void run_repeat_factor(const Json& one_case) {
  require_known_fields(one_case, {"repeat_factors", "world_size", "seed", "first_24_of_each_rank"});
  const List stream = repeat_factor_stream(one_case.at("repeat_factors"), one_case.at("seed").get<std::uint64_t>(),
                                           24 * one_case.at("world_size").get<std::size_t>());
  expect_stream(std::make_shared<Given>(Lists{stream}), one_case.at("first_24_of_each_rank"));
}

void run_random_subset(const Json& one_case) {
  require_known_fields(one_case, {"size", "ratio", "seed_shuffle", "seed_subset", "first_12"});
  data::TorchGenerator choice(one_case.at("seed_subset").get<std::uint64_t>());
  const List chosen = data::subset_of(choice.permutation(one_case.at("size")), one_case.at("ratio"));
  const auto size = static_cast<std::int64_t>(chosen.size());
  const data::OrderPtr order = passes(size, one_case.at("seed_shuffle").get<std::uint64_t>(), 12 / size + 1);
  expect_stream(data::subset_order(order, chosen), {one_case.at("first_12").get<List>()});
}

void run_blocks(const Json& one_case) {
  require_known_fields(one_case, {"length", "world_size", "batch_size", "seed", "epoch", "start_iter",
                                  "permutation_inside_the_block", "ranks"});
  const std::int64_t length = one_case.at("length");
  const std::int64_t world_size = one_case.at("world_size");
  const std::int64_t epoch = one_case.at("epoch");
  const data::OrderPtr inside = data::torch_order(length / world_size, one_case.at("seed").get<std::uint64_t>());
  EXPECT_EQ(inside->indices(epoch, 0, inside->length()), one_case.at("permutation_inside_the_block").get<List>());
  const Sampler sampler(data::block_order(length, inside, {.blocks = world_size, .global_batch_size = world_size}),
                        world_size, data::Remainder::drop);
  const std::int64_t skipped =
      one_case.at("start_iter").get<std::int64_t>() * one_case.at("batch_size").get<std::int64_t>();
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    EXPECT_EQ(of_rank(sampler, rank, epoch * sampler.steps_per_epoch() + skipped, sampler.steps_per_epoch() - skipped),
              one_case.at("ranks").at(static_cast<std::size_t>(rank)).get<List>());
  }
}

void run_permutation(const Json& one_case) {
  require_known_fields(one_case, {"n", "seed", "permutation"});
  data::TorchGenerator generator(one_case.at("seed").get<std::uint64_t>());
  EXPECT_EQ(generator.permutation(one_case.at("n")), one_case.at("permutation").get<List>());
}

void run_large_permutation(const Json& one_case) {
  require_known_fields(one_case, {"n", "seed", "first_20", "last_5", "sum_of_i_times_p_mod_2^61"});
  data::TorchGenerator generator(one_case.at("seed").get<std::uint64_t>());
  const List permutation = generator.permutation(one_case.at("n"));
  EXPECT_EQ(List(permutation.begin(), permutation.begin() + 20), one_case.at("first_20").get<List>());
  EXPECT_EQ(List(permutation.end() - 5, permutation.end()), one_case.at("last_5").get<List>());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < permutation.size(); ++i) sum += i * static_cast<std::uint64_t>(permutation[i]);
  EXPECT_EQ(sum % (std::uint64_t{1} << 61), one_case.at("sum_of_i_times_p_mod_2^61").get<std::uint64_t>());
}

/// Runs each element of a list of a file, which must not be empty.
void run_list(const std::string& file, const std::string& field, void (*run)(const Json&)) {
  if (!std::filesystem::is_directory(root() / "sampler")) GTEST_SKIP() << "no reference data in " << root();
  const Json cases = load("sampler/" + file).at(field);
  ASSERT_FALSE(cases.empty());
  for (const Json& one_case : cases) {
    SCOPED_TRACE(field + " " + one_case.dump().substr(0, 120));
    run(one_case);
  }
}

TEST(ReferenceTest, EveryListOfSamplesIsThatOfTheOtherLibraries) {
  run_topic(
      "sampler",
      {{.file = "torch_distributed_sampler.json", .run = run_distributed},
       {.file = "vissl_sampler.json", .run = run_blocks},
       {.file = "randperm.json", .extra_fields = {"large"}, .run = run_permutation},
       // A second iterator that continues with the first one's stream has no counterpart: there is no iterator.
       {.file = "mmengine_sampler.json", .extra_fields = {"default_sampler", "infinite_sampler", "second_iterator"}},
       {.file = "detectron2_sampler.json",
        .extra_fields = {"training", "inference", "repeat_factor", "repeat_factors_from_categories",
                         "random_subset"}}});
}

/// timm's RepeatAugSampler, as far as an epoch of repeated_order reaches.
TEST(ReferenceTest, RepeatedAugmentation) {
  if (!std::filesystem::exists(golden("data/repeated_augmentation.json"))) GTEST_SKIP() << "no reference data";
  const Json document = load("data/repeated_augmentation.json");
  for (const Json& one_case : document.at("cases")) {
    require_known_fields(one_case, {"length", "world_size", "repeats", "selected_round", "epoch", "permutation",
                                    "selected_per_rank", "first_24_of_each_rank"});
    const std::int64_t length = one_case.at("length");
    const std::int64_t world_size = one_case.at("world_size");
    const std::int64_t epoch = one_case.at("epoch");
    const auto permutation = data::torch_order(length, 0);
    if (!one_case.at("permutation").is_null()) {
      EXPECT_EQ(permutation->indices(epoch, 0, length), one_case.at("permutation").get<List>());
    }
    const List order = data::repeated_order(permutation, one_case.at("repeats"))->indices(epoch, 0, length);
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      const List expected = one_case.at("first_24_of_each_rank").at(static_cast<std::size_t>(rank));
      for (std::size_t k = 0; k < expected.size(); ++k) {
        const std::int64_t position = rank + world_size * static_cast<std::int64_t>(k);
        if (position >= length) continue;
        EXPECT_EQ(order[static_cast<std::size_t>(position)], expected[k]) << one_case;
      }
    }
  }
}

TEST(ReferenceTest, LargePermutations) { run_list("randperm.json", "large", run_large_permutation); }

TEST(ReferenceTest, DefaultSampler) { run_list("mmengine_sampler.json", "default_sampler", run_default); }

TEST(ReferenceTest, InfiniteSampler) { run_list("mmengine_sampler.json", "infinite_sampler", run_infinite); }

TEST(ReferenceTest, TrainingSampler) { run_list("detectron2_sampler.json", "training", run_training); }

TEST(ReferenceTest, InferenceSampler) { run_list("detectron2_sampler.json", "inference", run_inference); }

TEST(ReferenceTest, RepeatFactorSampler) { run_list("detectron2_sampler.json", "repeat_factor", run_repeat_factor); }

TEST(ReferenceTest, RandomSubset) { run_list("detectron2_sampler.json", "random_subset", run_random_subset); }

TEST(ReferenceTest, RepeatFactorsFromCategories) {
  if (!std::filesystem::is_directory(root() / "sampler")) GTEST_SKIP() << "no reference data in " << root();
  const Json given = load("sampler/detectron2_sampler.json").at("repeat_factors_from_categories");
  require_known_fields(given, {"categories_of_each_image", "threshold", "factors"});
  expect_close(data::repeat_factors(given.at("categories_of_each_image").get<Lists>(), given.at("threshold")),
               given.at("factors").get<std::vector<double>>(), {.absolute = 1e-6, .relative = 0}, "factors");
}

}  // namespace sampler_test
}  // namespace lockstep::testing::reference
