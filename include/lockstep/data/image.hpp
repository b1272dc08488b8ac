// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

namespace lockstep::data {

/// Memory for numbers that grows and never shrinks. New elements have arbitrary values. Vector instructions can read
/// kSlack bytes before the first element and beyond the last one.
template <class T>
class Buffer {
 public:
  static constexpr std::size_t kSlack = 64;

  Buffer() = default;
  Buffer(const Buffer& other) { *this = other; }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(const Buffer& other) {
    if (this == &other) return *this;
    resize(other.size_);
    if (size_ > 0) std::memcpy(data(), other.data(), size_ * sizeof(T));
    return *this;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() = default;

  /// Keeps the elements only where the memory does not have to grow.
  void resize(std::size_t size) {
    if (size > capacity_) {
      storage_ = std::make_unique_for_overwrite<std::byte[]>(size * sizeof(T) + 2 * kSlack);
      capacity_ = size;
    }
    size_ = size;
  }
  void swap(Buffer& other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  std::size_t size() const noexcept { return size_; }
  T* data() noexcept { return storage_ ? reinterpret_cast<T*>(storage_.get() + kSlack) : nullptr; }
  const T* data() const noexcept { return storage_ ? reinterpret_cast<const T*>(storage_.get() + kSlack) : nullptr; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

struct ImageSize {
  int height = 0;
  int width = 0;

  bool operator==(const ImageSize&) const = default;
};

/// A rectangle of pixels of an image.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;

  ImageSize size() const noexcept { return {height, width}; }
  bool operator==(const Box&) const = default;
};

/// The box of all pixels of an image.
inline Box whole(ImageSize size) { return {0, 0, size.height, size.width}; }

/// Pixels of an image: height x width x channels bytes, row by row.
struct Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  Buffer<std::uint8_t> pixels;

  ImageSize size() const noexcept { return {height, width}; }
  /// Bytes from a row to the next.
  std::size_t stride() const noexcept { return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels); }
  std::uint8_t* row(int y) noexcept { return pixels.data() + static_cast<std::size_t>(y) * stride(); }
  const std::uint8_t* row(int y) const noexcept { return pixels.data() + static_cast<std::size_t>(y) * stride(); }
  /// Changes the shape; the pixels are arbitrary afterward.
  void reshape(ImageSize size, int channel_count) {
    height = size.height;
    width = size.width;
    channels = channel_count;
    pixels.resize(static_cast<std::size_t>(height) * stride());
  }
  void swap(Image& other) noexcept {
    std::swap(height, other.height);
    std::swap(width, other.width);
    std::swap(channels, other.channels);
    pixels.swap(other.pixels);
  }
};

}  // namespace lockstep::data
