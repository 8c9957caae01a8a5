// Finds the end of one JSON string, object or array. The theory is in fastfront/fast/nest.py.
#pragma once

#include <cstdint>

namespace fastfront {

class Nest {
 public:
  explicit Nest(char opening) : opening_(opening), closing_(opening == '{' ? '}' : ']') {}

  bool done() const { return done_; }

  // Takes one character, or one byte of UTF-8: all that counts is ASCII.
  void feed(uint32_t unit) {
    if (escaped_) {
      escaped_ = false;
    } else if (in_string_) {
      if (unit == '\\') {
        escaped_ = true;
      } else if (unit == '"') {
        in_string_ = false;
        done_ = opening_ == '"';
      }
    } else if (unit == '"') {
      in_string_ = true;
    } else if (unit == opening_ || unit == closing_) {
      depth_ += unit == opening_ ? 1 : -1;
      done_ = depth_ == 0;
    }
  }

 private:
  uint8_t opening_;
  uint8_t closing_;
  bool in_string_ = false;
  bool escaped_ = false;
  bool done_ = false;
  int64_t depth_ = 0;
};

}  // namespace fastfront
