// Reads msgpack in place, every step bounds-checked, and writes the little that is packed by hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace fastfront {

// A cursor over one message. After the first wrong byte `ok()` is false and every read gives nothing.
class Reader {
 public:
  explicit Reader(std::string_view data)
      : begin_(reinterpret_cast<const uint8_t*>(data.data())), at_(begin_), end_(begin_ + data.size()) {}

  bool ok() const { return ok_; }
  size_t offset() const { return static_cast<size_t>(at_ - begin_); }
  bool at_end() const { return at_ == end_; }

  std::string_view since(size_t offset) const {
    return {reinterpret_cast<const char*>(begin_) + offset, this->offset() - offset};
  }

  bool take_nil() {
    if (!ok_ || at_ == end_ || *at_ != 0xC0) return false;
    ++at_;
    return true;
  }

  // Every element takes at least a byte, so a length beyond the message is wrong at once.
  uint32_t array() {
    const int tag = byte();
    if (tag < 0) return 0;
    uint64_t count = 0;
    if ((tag & 0xF0) == 0x90) {
      count = static_cast<uint64_t>(tag & 0x0F);
    } else if (tag == 0xDC) {
      count = big_endian(2);
    } else if (tag == 0xDD) {
      count = big_endian(4);
    } else {
      return fail();
    }
    if (!ok_ || count > static_cast<uint64_t>(end_ - at_)) return fail();
    return static_cast<uint32_t>(count);
  }

  // Any integer, also unsigned above 2^63 - 1 (which stays positive by being cut to that: no id is that large).
  int64_t integer() {
    const int tag = byte();
    if (tag < 0) return 0;
    if (tag < 0x80) return tag;
    if (tag >= 0xE0) return tag - 256;
    switch (tag) {
      case 0xCC: return static_cast<int64_t>(big_endian(1));
      case 0xCD: return static_cast<int64_t>(big_endian(2));
      case 0xCE: return static_cast<int64_t>(big_endian(4));
      case 0xCF: {
        const uint64_t value = big_endian(8);
        return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value);
      }
      case 0xD0: return static_cast<int8_t>(big_endian(1));
      case 0xD1: return static_cast<int16_t>(big_endian(2));
      case 0xD2: return static_cast<int32_t>(big_endian(4));
      case 0xD3: return static_cast<int64_t>(big_endian(8));
      default: return fail();
    }
  }

  bool next_is_string() const {
    return ok_ && at_ < end_ && ((*at_ & 0xE0) == 0xA0 || (*at_ >= 0xD9 && *at_ <= 0xDB));
  }

  std::string_view string() {
    const int tag = byte();
    if (tag < 0) return {};
    uint64_t size = 0;
    if ((tag & 0xE0) == 0xA0) {
      size = static_cast<uint64_t>(tag & 0x1F);
    } else if (tag >= 0xD9 && tag <= 0xDB) {
      size = big_endian(1U << (tag - 0xD9));
    } else {
      fail();
      return {};
    }
    if (!ok_ || size > static_cast<uint64_t>(end_ - at_)) {
      fail();
      return {};
    }
    const std::string_view text(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return text;
  }

  // Passes over one value of any kind, without recursion.
  void skip() {
    for (uint64_t left = 1; ok_ && left > 0; --left) {
      const int tag = byte();
      if (tag < 0) return;
      if (tag < 0x80 || tag >= 0xE0 || tag == 0xC0 || tag == 0xC2 || tag == 0xC3) continue;
      if ((tag & 0xE0) == 0xA0) {
        advance(static_cast<uint64_t>(tag & 0x1F));
      } else if ((tag & 0xF0) == 0x80) {
        left += 2 * static_cast<uint64_t>(tag & 0x0F);
      } else if ((tag & 0xF0) == 0x90) {
        left += static_cast<uint64_t>(tag & 0x0F);
      } else {
        switch (tag) {
          case 0xC4: case 0xD9: advance(big_endian(1)); break;
          case 0xC5: case 0xDA: advance(big_endian(2)); break;
          case 0xC6: case 0xDB: advance(big_endian(4)); break;
          case 0xC7: advance(big_endian(1) + 1); break;
          case 0xC8: advance(big_endian(2) + 1); break;
          case 0xC9: advance(big_endian(4) + 1); break;
          case 0xCC: case 0xD0: advance(1); break;
          case 0xCD: case 0xD1: advance(2); break;
          case 0xCA: case 0xCE: case 0xD2: advance(4); break;
          case 0xCB: case 0xCF: case 0xD3: advance(8); break;
          case 0xD4: advance(2); break;
          case 0xD5: advance(3); break;
          case 0xD6: advance(5); break;
          case 0xD7: advance(9); break;
          case 0xD8: advance(17); break;
          case 0xDC: left += big_endian(2); break;
          case 0xDD: left += big_endian(4); break;
          case 0xDE: left += 2 * big_endian(2); break;
          case 0xDF: left += 2 * big_endian(4); break;
          default: fail();
        }
      }
      if (left > static_cast<uint64_t>(end_ - at_) + 1) fail();
    }
  }

 private:
  int byte() {
    if (!ok_ || at_ == end_) {
      fail();
      return -1;
    }
    return *at_++;
  }

  uint64_t big_endian(unsigned size) {
    if (!ok_ || static_cast<size_t>(end_ - at_) < size) return static_cast<uint64_t>(fail());
    uint64_t value = 0;
    for (unsigned n = 0; n < size; ++n) value = value << 8 | *at_++;
    return value;
  }

  void advance(uint64_t size) {
    if (size > static_cast<uint64_t>(end_ - at_)) {
      fail();
    } else {
      at_ += size;
    }
  }

  int fail() {
    ok_ = false;
    return 0;
  }

  const uint8_t* begin_;
  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

// The most bytes that the two below write.
constexpr size_t ARRAY_SIZE = 5, ID_SIZE = 5;

template <typename T>
char* write_big_endian(char* to, uint8_t tag, T value) {
  *to++ = static_cast<char>(tag);
  for (int shift = 8 * (sizeof(T) - 1); shift >= 0; shift -= 8) *to++ = static_cast<char>(value >> shift);
  return to;
}

// The head of an array; where it ends.
inline char* write_array(char* to, uint32_t count) {
  if (count < 16) {
    *to = static_cast<char>(0x90 | count);
    return to + 1;
  }
  if (count <= 0xFFFF) return write_big_endian<uint16_t>(to, 0xDC, count);
  return write_big_endian<uint32_t>(to, 0xDD, count);
}

inline char* write_id(char* to, uint32_t value) {
  if (value < 0x80) {
    *to = static_cast<char>(value);
    return to + 1;
  }
  if (value <= 0xFF) return write_big_endian<uint8_t>(to, 0xCC, value);
  if (value <= 0xFFFF) return write_big_endian<uint16_t>(to, 0xCD, value);
  return write_big_endian<uint32_t>(to, 0xCE, value);
}

}  // namespace fastfront
