// SPDX-License-Identifier: BSD-3-Clause
#include "embed/letters.hpp"

#include <torch/types.h>

#include <cstring>
#include <utility>

namespace lockstep::embed {

namespace {

constexpr std::size_t kAlignment = 64;

/// Writes numbers and texts one after the other. Without memory, only counts the bytes.
class Pen {
 public:
  explicit Pen(std::byte* memory) : memory_(memory) {}

  void number(std::int64_t value) { bytes(&value, sizeof value); }
  void text(const std::string& value) {
    number(std::ssize(value));
    bytes(value.data(), value.size());
  }
  void tensor(const at::Tensor& values) {
    number(static_cast<std::int64_t>(values.scalar_type()));
    number(values.dim());
    for (const std::int64_t size : values.sizes()) number(size);
    written_ = (written_ + kAlignment - 1) / kAlignment * kAlignment;
    if (memory_ != nullptr && values.numel() > 0) {
      at::from_blob(memory_ + written_, values.sizes(), at::TensorOptions(values.scalar_type())).copy_(values);
    }
    written_ += values.nbytes();
  }
  std::size_t written() const { return written_; }

 private:
  void bytes(const void* from, std::size_t count) {
    if (memory_ != nullptr && count > 0) std::memcpy(memory_ + written_, from, count);
    written_ += count;
  }

  std::byte* memory_;
  std::size_t written_ = 0;
};

void write(const Letter& letter, Pen& pen) {
  pen.number(letter.number);
  pen.text(letter.text);
  pen.number(std::ssize(letter.tensors));
  for (const auto& [name, tensor] : letter.tensors) {
    pen.text(name);
    pen.tensor(tensor);
  }
}

/// Reads what a Pen wrote.
class Reader {
 public:
  explicit Reader(std::shared_ptr<LetterBytes> bytes) : bytes_(std::move(bytes)) {}

  std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, bytes_->data() + read_, sizeof value);
    read_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto length = static_cast<std::size_t>(number());
    std::string value(reinterpret_cast<const char*>(bytes_->data() + read_), length);
    read_ += length;
    return value;
  }
  at::Tensor tensor() {
    const at::TensorOptions options(static_cast<at::ScalarType>(number()));
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(number()));
    for (std::int64_t& size : sizes) size = number();
    read_ = (read_ + kAlignment - 1) / kAlignment * kAlignment;
    const at::Tensor values = at::from_blob(
        bytes_->data() + read_, sizes, [kept = bytes_](void*) {}, options);
    read_ += values.nbytes();
    return values;
  }

 private:
  std::shared_ptr<LetterBytes> bytes_;
  std::size_t read_ = 0;
};

}  // namespace

std::shared_ptr<const LetterBytes> packed(const Letter& letter) {
  const torch::NoGradGuard no_grad;
  Pen counter(nullptr);
  write(letter, counter);
  auto bytes = std::make_shared<LetterBytes>(counter.written());
  Pen pen(bytes->data());
  write(letter, pen);
  return bytes;
}

Letter unpacked(LetterBytes bytes) {
  Reader reader(std::make_shared<LetterBytes>(std::move(bytes)));
  Letter letter{.number = reader.number(), .text = reader.text()};
  const std::int64_t count = reader.number();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = reader.text();
    letter.tensors.emplace_back(name, reader.tensor());
  }
  return letter;
}

std::int64_t bytes_of(const SampleTensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace lockstep::embed
