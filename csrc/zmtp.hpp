// Finds whole messages of one frame in what was read from a ZMTP connection. Everything else is the codec's affair.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fastfront {

// The message that begins at `at` (its size in bytes 1 or 1 to 8, flag 2 says which); `at` moves behind it. None, and
// `at` stays, where it is not there whole, has more frames, or is a command.
inline std::optional<std::string_view> next_message(std::string_view data, size_t& at) {
  constexpr unsigned kLong = 2;
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  if (data.size() - at < 2 || (bytes[at] & ~kLong) != 0) return std::nullopt;
  size_t start = at + 2;
  uint64_t size = bytes[at + 1];
  if (bytes[at] == kLong) {
    start = at + 9;
    if (data.size() < start) return std::nullopt;
    for (size_t n = at + 2; n < start; ++n) size = size << 8 | bytes[n];
  }
  if (size > data.size() - start) return std::nullopt;
  at = start + static_cast<size_t>(size);
  return data.substr(start, static_cast<size_t>(size));
}

}  // namespace fastfront
