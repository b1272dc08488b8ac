// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// How TensorBoard's event files are divided into records.
namespace lockstep::report {

/// The checksum of RFC 3720, appendix B.4: polynomial 0x1EDC6F41 with its bits reversed.
std::uint32_t crc32c(std::string_view bytes) noexcept;

/// One record: length (8 bytes), its masked CRC-32C (4), the payload, its masked CRC-32C (4); numbers little-endian.
/// The mask, a rotation and an addition, keeps apart the checksum of a text from that of a text which ends in a
/// checksum.
std::string event_frame(std::string_view payload);

}  // namespace lockstep::report
