// UTF-8 one byte at a time, with the error rule of the Unicode standard (3.9, "maximal subpart") and of WHATWG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fastfront {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Where a decoder stands inside a character: how many bytes it still needs, and which the next one may be.
class Utf8State {
 public:
  enum class Verdict { kComplete, kNeedsMore, kInvalid, kInvalidBefore };

  bool between_characters() const { return needed_ == 0; }

  // kInvalid: this byte is ill-formed on its own. kInvalidBefore: the bytes before it are, and it must be fed again.
  Verdict feed(uint8_t byte) {
    if (needed_ == 0) return begin(byte);
    if (byte < low_ || byte > high_) {
      needed_ = 0;
      return Verdict::kInvalidBefore;
    }
    low_ = 0x80;
    high_ = 0xBF;
    return --needed_ == 0 ? Verdict::kComplete : Verdict::kNeedsMore;
  }

  void reset() { needed_ = 0; }

 private:
  Verdict begin(uint8_t byte) {
    if (byte < 0x80) return Verdict::kComplete;
    low_ = 0x80;
    high_ = 0xBF;
    if (byte >= 0xC2 && byte <= 0xDF) {
      needed_ = 1;
    } else if (byte >= 0xE0 && byte <= 0xEF) {
      needed_ = 2;
      if (byte == 0xE0) low_ = 0xA0;   // overlong
      if (byte == 0xED) high_ = 0x9F;  // surrogates
    } else if (byte >= 0xF0 && byte <= 0xF4) {
      needed_ = 3;
      if (byte == 0xF0) low_ = 0x90;   // overlong
      if (byte == 0xF4) high_ = 0x8F;  // above U+10FFFF
    } else {
      return Verdict::kInvalid;
    }
    return Verdict::kNeedsMore;
  }

  uint8_t needed_ = 0;
  uint8_t low_ = 0x80;
  uint8_t high_ = 0xBF;
};

// Whether `data` is well formed and ends between two characters.
inline bool is_utf8(std::string_view data) {
  Utf8State state;
  for (unsigned char byte : data) {
    const auto verdict = state.feed(byte);
    if (verdict == Utf8State::Verdict::kInvalid || verdict == Utf8State::Verdict::kInvalidBefore) return false;
  }
  return state.between_characters();
}

}  // namespace fastfront
