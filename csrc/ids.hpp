// Token ids as engines and clients read them: msgpack and JSON.
#pragma once

#include <charconv>
#include <cstdint>

#include "msgpack.hpp"

namespace fastfront {

// What one id takes at most, with the comma or bracket behind it.
inline constexpr size_t JSON_ID_SIZE = 11;

// An array of `count` ids as JSON; there must be room for JSON_ID_SIZE bytes an id and two more. Returns its end.
inline char* write_json_ids(char* to, const uint32_t* ids, size_t count) {
  *to++ = '[';
  for (size_t at = 0; at < count; ++at) {
    if (at) *to++ = ',';
    to = std::to_chars(to, to + JSON_ID_SIZE, ids[at]).ptr;
  }
  *to++ = ']';
  return to;
}

// An array of `count` ids below `limit` as msgpack; nullptr where one is not. There must be room for ARRAY_SIZE bytes and
// ID_SIZE for each id. Returns its end.
inline char* write_packed_ids(char* to, const uint32_t* ids, size_t count, uint32_t limit) {
  to = write_array(to, static_cast<uint32_t>(count));
  for (size_t at = 0; at < count; ++at) {
    if (ids[at] >= limit) return nullptr;
    to = write_id(to, ids[at]);
  }
  return to;
}

}  // namespace fastfront
