// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoints/foreign/pickle.hpp"
#include "checkpoints/foreign/source.hpp"

namespace lockstep::checkpoints {

/// The bytes of a pickle and the stack of values that its opcodes work on. Every value is an index into those of the
/// result.
class PickleStack {
 public:
  explicit PickleStack(std::span<const std::byte> bytes) : bytes_(bytes) {}

 protected:
  static constexpr std::size_t kMaxValues = 4'000'000;
  static constexpr std::size_t kMaxNameBytes = 200;

  /// @throws CheckpointError  with the byte of the current opcode
  [[noreturn]] void fail(const std::string& message, CheckpointFault fault = CheckpointFault::damaged) const {
    throw CheckpointError("byte " + std::to_string(opcode_at_) + ": " + message).as(fault);
  }

  // --- the bytes of the program ---

  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size() - position_) fail("it is truncated");
    return bytes_.subspan(std::exchange(position_, position_ + count), count);
  }
  template <class Value>
  Value number() {
    return load<Value>(take(sizeof(Value)), 0);
  }
  std::string text(std::size_t length) {
    const auto bytes = take(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string line() {
    const auto rest = bytes_.subspan(position_);
    const auto end = std::ranges::find(rest, std::byte{'\n'});
    const auto length = static_cast<std::size_t>(end - rest.begin());
    if (end == rest.end() || length > kMaxNameBytes) fail("a name is not terminated, or has more than 200 bytes");
    std::string result = text(length);
    ++position_;
    return result;
  }

  // --- values and the stack ---

  std::uint32_t make(PickleValue value) {
    if (pickle_.values.size() >= kMaxValues) fail("it creates more than 4 million values");
    pickle_.values.push_back(std::move(value));
    return static_cast<std::uint32_t>(pickle_.values.size() - 1);
  }
  void push(PickleValue value) { stack_.push_back(make(std::move(value))); }
  void push(PickleValue::Kind kind, std::vector<std::uint32_t> items = {}) {
    push({.kind = kind, .items = std::move(items)});
  }
  void push_integer(std::int64_t value) { push({.kind = PickleValue::Kind::integer, .integer = value}); }
  void push_unknown(PickleValue::Kind kind, std::string text) { push({.kind = kind, .text = std::move(text)}); }
  void push_text(std::string value) { push({.kind = PickleValue::Kind::text, .text = std::move(value)}); }
  void push_converted_text(std::string value) {
    push({.kind = PickleValue::Kind::text, .integer = 1, .text = std::move(value)});
  }

  PickleValue& value(std::uint32_t index) { return pickle_.values[index]; }
  std::uint32_t pop() {
    const std::uint32_t top = peek();
    stack_.pop_back();
    return top;
  }
  std::uint32_t peek() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("it pops from an empty stack");
    return stack_.back();
  }
  std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty()) fail("it pops to a mark that does not exist");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<std::uint32_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  PickleValue& top(PickleValue::Kind kind, const char* what) {
    PickleValue& found = value(peek());
    if (found.kind != kind) fail(std::string("it uses a value of another type as ") + what);
    return found;
  }
  void append(PickleValue::Kind kind, const char* what, const std::vector<std::uint32_t>& items) {
    if (value(peek()).kind == PickleValue::Kind::unknown) return;  // the content of an unknown object is left out
    auto& known = top(kind, what).items;
    known.insert(known.end(), items.begin(), items.end());
  }

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  std::size_t opcode_at_ = 0;
  Pickle pickle_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, std::uint32_t> memo_;
};

}  // namespace lockstep::checkpoints
