// SPDX-License-Identifier: BSD-3-Clause
// The envelope of a checkpoint and the index behind it. The digest is made right, so that what it guards is reached.
#include <lockstep/core/error.hpp>

#include <cstring>

#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/index.hpp"

using namespace lockstep::checkpoints;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  Envelope envelope;
  std::memcpy(&envelope, bytes.data(), std::min(size, sizeof envelope));
  envelope.magic = kMagic;
  seal(envelope);
  for (const auto head : {bytes.first(std::min(size, kEnvelopeBytes)), std::span<const std::byte>(envelope.bytes())}) {
    try {
      parse_envelope("fuzz", head, size);
    } catch (const lockstep::CheckpointError&) {
    }
  }
  if (const auto index = Index::decode(bytes)) cut_into_pieces(index->places, kEnvelopeBytes, size);
  return 0;
}
