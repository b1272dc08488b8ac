// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/part_parameters.hpp"

#include <ATen/core/Tensor.h>

#include <utility>

#include "parallel/store/parameter_store.hpp"

namespace lockstep::parallel {

PartParameters::PartParameters(ParameterStore& store, std::size_t part, std::vector<std::size_t> blocks)
    : store_(&store), part_(part), numbers_(std::move(blocks)) {
  for (const std::size_t number : numbers_) blocks_.push_back(store.blocks()[number]);
}

void PartParameters::update_ownership() {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::vector<optim::Segment>& from = store_->blocks()[numbers_[b]].segments;
    for (std::size_t s = 0; s < from.size(); ++s) {
      blocks_[b].segments[s].own_begin = from[s].own_begin;
      blocks_[b].segments[s].own_end = from[s].own_end;
    }
  }
}

std::shared_ptr<std::byte> PartParameters::allocate(std::size_t bytes) { return store_->allocate(bytes); }

void PartParameters::own_whole_parameters() { store_->own_whole_parameters(); }

bool PartParameters::is_divided() const noexcept { return store_->is_divided(); }

void PartParameters::finish_gradients() { store_->finish_gradients_of(part_); }

bool PartParameters::has_gradient(std::size_t block, std::size_t segment) const {
  return store_->has_gradient(in_store(block), segment);
}

void PartParameters::visit_gradients(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last) {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    store_->visit_block(
        in_store(b),
        [&](optim::GradientPiece piece) {
          piece.block = b;
          visit(piece);
        },
        is_last);
  }
}

optim::TensorParameters* PartParameters::as_tensors() noexcept {
  return store_->as_tensors() != nullptr ? this : nullptr;
}

void PartParameters::drop_gradients() { store_->drop_gradients_of(part_); }

void PartParameters::write(const std::function<void()>& body) { store_->write(body); }

void PartParameters::write_alone(const std::function<void()>& body) { store_->write_alone(body); }

void PartParameters::sum_over_owners(std::span<double> values) const { store_->sum_over_owners(values); }

at::Tensor PartParameters::flat_parameter(std::size_t block, std::size_t segment) {
  return store_->as_tensors()->flat_parameter(in_store(block), segment);
}

at::Tensor PartParameters::flat_gradient(std::size_t block, std::size_t segment) {
  return store_->as_tensors()->flat_gradient(in_store(block), segment);
}

void PartParameters::sum_over_ranks(const at::Tensor& values) { store_->as_tensors()->sum_over_ranks(values); }

void PartParameters::maximum_over_ranks(const at::Tensor& values) { store_->as_tensors()->maximum_over_ranks(values); }

}  // namespace lockstep::parallel
