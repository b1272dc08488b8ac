// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>

namespace lockstep::testing {

/// FlatParameters in the memory of one process: one block, gradients that a test sets by name.
class FlatParametersDouble : public optim::FlatParameters {
 public:
  struct Parameter {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  FlatParametersDouble(DType dtype, const std::vector<Parameter>& parameters) : gradients_(parameters.size()) {
    const auto per_line = static_cast<std::int64_t>(sizeof(Line) / size_of(dtype));
    optim::FlatBlock block{.dtype = dtype, .parameters = nullptr, .segments = {}};
    for (const auto& [name, shape] : parameters) {
      std::int64_t count = 1;
      for (const std::int64_t size : shape) count *= size;
      block.segments.push_back({.name = name,
                                .shape = shape,
                                .strides = {},
                                .offset = block.count,
                                .count = count,
                                .own_begin = 0,
                                .own_end = count});
      block.count += (count + per_line - 1) / per_line * per_line;
    }
    lines_.resize(static_cast<std::size_t>(block.count / per_line));
    block.parameters = lines_.data()->bytes.data();
    blocks_.push_back(std::move(block));
  }
  FlatParametersDouble(const FlatParametersDouble&) = delete;
  FlatParametersDouble& operator=(const FlatParametersDouble&) = delete;

  /// This process owns elements [begin, end) of a parameter only; at first it owns all of every one.
  void own(const std::string& name, std::int64_t begin, std::int64_t end) {
    optim::Segment& segment = blocks_[0].segments[index_of(name)];
    segment.own_begin = begin;
    segment.own_end = end;
  }

  template <class T>
  std::span<T> values(const std::string& name) {
    const optim::Segment& segment = blocks_[0].segments[index_of(name)];
    return {reinterpret_cast<T*>(blocks_[0].parameters) + segment.offset, static_cast<std::size_t>(segment.count)};
  }
  template <class T>
  void set_values(const std::string& name, const std::vector<T>& numbers) {
    copy_checked(numbers, values<T>(name));
  }
  template <class T>
  void set_gradient(const std::string& name, const std::vector<T>& numbers) {
    auto& bytes = gradients_[index_of(name)].emplace(values<T>(name).size_bytes());
    copy_checked(numbers, std::span(reinterpret_cast<T*>(bytes.data()), values<T>(name).size()));
  }
  template <class T>
  std::vector<T> gradient_of(const std::string& name) const {
    const auto& bytes = gradients_[index_of(name)].value();
    const auto* first = reinterpret_cast<const T*>(bytes.data());
    return {first, first + bytes.size() / sizeof(T)};
  }
  /// Every byte of the block, padding included.
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(lines_)); }
  std::int64_t count() const { return blocks_[0].count; }

  std::span<const optim::FlatBlock> blocks() const override { return blocks_; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    auto lines = std::make_shared<std::vector<Line>>(bytes / sizeof(Line) + 1);
    std::byte* const begin = lines->data()->bytes.data();
    return {std::move(lines), begin};
  }
  /// Whoever owns the beginning then owns the whole.
  void own_whole_parameters() override {
    for (optim::Segment& segment : blocks_[0].segments) {
      segment.own_end = segment.own_begin == 0 && segment.own_end > 0 ? segment.count : 0;
      segment.own_begin = 0;
    }
  }
  bool has_gradient(std::size_t block, std::size_t segment) const override {
    return gradient(block, segment) != nullptr;
  }
  void visit_gradients(const std::function<void(const optim::GradientPiece&)>& visit, bool) override {
    for (std::size_t s = 0; s < blocks_[0].segments.size(); ++s) {
      if (!has_gradient(0, s)) continue;
      const optim::Segment& segment = blocks_[0].segments[s];
      const std::size_t element = size_of(blocks_[0].dtype);
      optim::for_each_part({.block = 0,
                            .segment = s,
                            .begin = segment.own_begin,
                            .count = segment.own_end - segment.own_begin,
                            .values = gradient(0, s) + static_cast<std::size_t>(segment.own_begin) * element},
                           longest_visit, element, visit);
    }
  }
  std::int64_t longest_visit = optim::kPieceElements;  ///< longest piece in which gradients are handed over
  virtual const std::byte* gradient(std::size_t, std::size_t segment) const {
    return gradients_[segment] ? gradients_[segment]->data() : nullptr;
  }
  void drop_gradients() override {
    for (auto& gradient : gradients_) gradient.reset();
  }
  void write(const std::function<void()>& body) override {
    ++writes;
    body();
  }
  void sum_over_owners(std::span<double> values) const override {
    for (std::size_t i = 0; i < std::min(values.size(), of_others.size()); ++i) values[i] += of_others[i];
  }

  int writes = 0;  ///< calls of `write` so far
  std::vector<double> of_others =
      {};  ///< `of_others`: what the owners of the other parts add to a sum, element by element

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };

  std::size_t index_of(const std::string& name) const {
    const auto& segments = blocks_[0].segments;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      if (segments[s].name == name) return s;
    }
    throw std::logic_error("no parameter '" + name + "'");
  }

  template <class T>
  static void copy_checked(const std::vector<T>& numbers, std::span<T> target) {
    if (numbers.size() != target.size()) throw std::logic_error("a parameter has another number of elements");
    std::copy(numbers.begin(), numbers.end(), target.begin());
  }

  std::vector<optim::FlatBlock> blocks_;
  std::vector<Line> lines_;
  std::vector<std::optional<std::vector<std::byte>>> gradients_;
};

}  // namespace lockstep::testing
