// SPDX-License-Identifier: BSD-3-Clause
#include "data/windows.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "data/source/hash.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

class Windows : public Dataset {
 public:
  Windows(std::shared_ptr<const TokenRun> run, Cut cut, std::int64_t block, std::int64_t vocabulary)
      : run_(std::move(run)), cut_(cut), block_(block), vocabulary_(vocabulary) {
    const std::int64_t targets = run_->size() - 1;
    last_begin_ = targets - block;
    size_ = cut == Cut::every_start ? last_begin_ + 1 : (targets + block - 1) / block;
  }

  std::int64_t size() const override { return size_; }

  Task task() const override {
    return {.sample_shape = {block_},
            .classes = vocabulary_,
            .predictions_per_sample = block_,
            .is_text = true,
            .kind = TaskKind::language};
  }

  batch::Batch get(std::span<const batch::Draw> draws) const override {
    check_indices(draws, size_);
    const auto count = static_cast<std::int64_t>(draws.size());
    const at::Tensor data = at::empty({count, block_}, at::kLong);
    const at::Tensor label = at::empty({count, block_}, at::kLong);
    auto* input = data.mutable_data_ptr<std::int64_t>();
    auto* target = label.mutable_data_ptr<std::int64_t>();
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(block_) + 1);
    for (const batch::Draw& draw : draws) {
      const std::int64_t wanted_begin = cut_ == Cut::every_start ? draw.index : draw.index * block_;
      const std::int64_t begin = std::min(wanted_begin, last_begin_);
      run_->read(begin, tokens);
      std::copy(tokens.begin(), tokens.end() - 1, input);
      std::copy(tokens.begin() + 1, tokens.end(), target);
      std::fill_n(target, wanted_begin - begin, kIgnored);
      input += block_;
      target += block_;
    }
    return {data, label};
  }

  std::uint64_t digest() const override {
    return hash_of({static_cast<std::uint64_t>(cut_), static_cast<std::uint64_t>(block_),
                    static_cast<std::uint64_t>(vocabulary_), run_->digest()});
  }

 private:
  std::shared_ptr<const TokenRun> run_;
  Cut cut_;
  std::int64_t block_;
  std::int64_t vocabulary_;
  std::int64_t last_begin_;
  std::int64_t size_;
};

}  // namespace

std::shared_ptr<const Dataset> make_windows(std::shared_ptr<const TokenRun> run, Cut cut, std::int64_t block,
                                            std::int64_t vocabulary) {
  if (run->size() <= block) {
    throw DataError(run->path(), std::string("the ") + (cut == Cut::every_start ? "training" : "validation") +
                                     " part has " + std::to_string(run->size()) +
                                     " tokens, but data.block = " + std::to_string(block) + " needs at least " +
                                     std::to_string(block + 1) + "; use a longer text or lower data.block");
  }
  return std::make_shared<Windows>(std::move(run), cut, block, vocabulary);
}

KeySpec block_key() {
  return keys::integer("data.block", "64", "text, tokens: tokens per sample (context length)", 1, 1 << 20);
}

}  // namespace lockstep::data
