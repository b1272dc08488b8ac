// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/envelope.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

namespace lockstep::checkpoints {

static_assert(std::endian::native == std::endian::little, "checkpoints need a little-endian machine");

namespace {

std::uint64_t digest_of(const Envelope& envelope) { return digest64(envelope.bytes().first<kEnvelopeBytes - 8>()); }

bool is_text(std::string_view head) {
  return std::ranges::all_of(
      head, [](unsigned char c) { return (c >= 0x20 && c != 0x7F) || c == '\n' || c == '\r' || c == '\t'; });
}

/// 8 bytes of header length, then a JSON object.
bool looks_like_safetensors(std::string_view head) {
  std::uint64_t length = 0;
  if (head.size() < 9) return false;
  std::memcpy(&length, head.data(), sizeof length);
  return length >= 2 && length <= 100'000'000 && head[8] == '{';
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// "; it was written by lockstep 0.1.0", where that can be read.
std::string written_by(const Envelope& envelope) {
  const std::string_view writer(envelope.writer.data(), ::strnlen(envelope.writer.data(), envelope.writer.size()));
  const bool is_known = !writer.empty() && is_text(writer) && writer.find('\n') == std::string_view::npos;
  return is_known ? "; it was written by " + std::string(writer) : "";
}

/// The error of a file that does not begin like ours: what it most likely is.
CheckpointError wrong_beginning(const std::string& path, std::string_view head) {
  using namespace std::string_view_literals;
  using enum CheckpointFault;
  const auto magic = std::string_view(kMagic.data(), kMagic.size());
  const std::string remedy = "; `ckpt ls` reads it, and --init.from takes its parameters";
  const auto error = [&path](CheckpointFault fault, const std::string& text) {
    return CheckpointError(path, text).as(fault);
  };
  if (head.empty()) return error(damaged, "the file is empty, as after a crash before its bytes reached the disk");
  if (head.find_first_not_of('\0') == std::string_view::npos) {
    return error(damaged, "it starts with zeros: its writer was interrupted, or its data never reached the disk");
  }
  if (magic.starts_with(head)) {
    return error(damaged, "it is truncated: it has only " + std::to_string(head.size()) + " bytes");
  }
  if (head.starts_with("\x89LSCP\n\x1A"sv) || head.starts_with("\x89LSCP\r\r\n\x1A"sv)) {
    return error(damaged, "its line ends were converted: copy the file in binary mode");
  }
  if (head.starts_with("PK\x03\x04"sv)) {
    return error(other_kind, "it is a zip archive, such as a PyTorch .pt file, not a Lockstep checkpoint" + remedy);
  }
  const std::string program = hdf5_writer(head);
  if (head.starts_with("\x89HDF\r\n\x1A\n"sv) || program == "MATLAB") {
    return error(incompatible, "it is an HDF5 file written by " + program +
                                   ", without the envelope of a Lockstep checkpoint" + remedy);
  }
  if (head.starts_with("\x1F\x8B"sv)) {
    return error(other_kind, "it is a gzip file, not a Lockstep checkpoint: decompress it first (`gunzip`)");
  }
  if (looks_like_safetensors(head))
    return error(other_kind, "it is a safetensors file, not a Lockstep checkpoint" + remedy);
  if (head.starts_with("\x80"sv) && head.size() > 1 && head[1] >= 2 && head[1] <= 5) {
    return error(
        other_kind,
        "it is a Python pickle, such as an old PyTorch .pt file, not a Lockstep checkpoint: load it in Python and "
        "call torch.save again");
  }
  if (is_text(head)) return error(other_kind, "it is a text file, not a Lockstep checkpoint");
  return error(damaged, "it is not a Lockstep checkpoint, or its first bytes are damaged");
}

}  // namespace

std::string hdf5_writer(std::string_view head) {
  if (head.starts_with("MATLAB 7.3 MAT-file")) return "MATLAB";
  const std::pair<const char*, const char*> signs[] = {{"keras_version", "Keras"},
                                                       {"layer_names", "Keras"},
                                                       {"PYTABLES_FORMAT_VERSION", "PyTables"},
                                                       {"NX_class", "NeXus"}};
  for (const auto& [sign, program] : signs) {
    if (head.find(sign) != std::string_view::npos) return program;
  }
  return "another program";
}

void seal(Envelope& envelope) { envelope.digest = digest_of(envelope); }

Envelope parse_envelope(const std::string& path, std::span<const std::byte> head, std::uint64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with(std::string_view(kMagic.data(), kMagic.size()))) throw wrong_beginning(path, text);
  if (head.size() < kEnvelopeBytes) {
    throw CheckpointError(path, "it is truncated: it has only " + std::to_string(head.size()) + " bytes");
  }
  Envelope envelope;
  std::memcpy(&envelope, head.data(), kEnvelopeBytes);
  if (envelope.format_version != kFormatVersion) {
    throw CheckpointError(path, "it has format version " + std::to_string(envelope.format_version) +
                                    ", but this program reads version " + std::to_string(kFormatVersion) + " only" +
                                    written_by(envelope))
        .as(CheckpointFault::incompatible);
  }
  if (envelope.digest != digest_of(envelope)) {
    throw CheckpointError(path, "it is damaged: bytes 0-4095, its envelope, differ from their digest (stored " +
                                    hex(envelope.digest) + ", computed " + hex(digest_of(envelope)) + ")");
  }
  if ((envelope.flags & ~kCommittedFlag) != 0) {
    throw CheckpointError(path, "it has feature flags " + hex(envelope.flags & ~kCommittedFlag) +
                                    ", but this program knows none" + written_by(envelope))
        .as(CheckpointFault::incompatible);
  }
  if ((envelope.flags & kCommittedFlag) == 0) {
    throw CheckpointError(path, "it is incomplete: its writer was stopped while it saved step " +
                                    std::to_string(envelope.step) + " (" + std::to_string(file_bytes) + " of " +
                                    std::to_string(envelope.file_bytes) + " bytes exist)");
  }
  if (envelope.file_bytes != file_bytes) {
    throw CheckpointError(path, "it has " + std::to_string(file_bytes) + " bytes instead of " +
                                    std::to_string(envelope.file_bytes) +
                                    (file_bytes < envelope.file_bytes
                                         ? ": it is truncated"
                                         : ": " + std::to_string(file_bytes - envelope.file_bytes) +
                                               " bytes were appended at byte " + std::to_string(envelope.file_bytes)));
  }
  if (envelope.index_offset < kEnvelopeBytes || envelope.index_offset > file_bytes) {
    throw CheckpointError(path, "it is malformed: its envelope states an index outside the file");
  }
  return envelope;
}

}  // namespace lockstep::checkpoints
