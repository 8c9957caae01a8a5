// Finds a field's value in the text of a JSON object. What is found is told in fastfront/fast/cut.py.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace fastfront {

class FieldFinder {
 public:
  size_t begin;  // of the value
  size_t end;

  // Whether `json` has the field `key` (with its quotes) at its first level, and a text, list or object there.
  bool find(std::string_view json, std::string_view key) {
    at_ = json.data();
    end_ = at_ + json.size();
    if (at_ == end_ || *at_ != '{') return false;
    ++at_;
    while (at_ < end_) {
      const char* start = at_;
      switch (*at_++) {
        case '"':
          if (!skip_string()) return false;
          if (std::string_view(start, at_ - start) == key && colon()) return value(json.data());
          break;
        case '{':
        case '[':
          if (!skip_nested()) return false;
          break;
        case '}':
        case ']':
          return false;
      }
    }
    return false;
  }

 private:
  const char* at_;
  const char* end_;

  // From behind the quote that opens a string to behind the one that closes it.
  bool skip_string() {
    while (true) {
      const void* quote = std::memchr(at_, '"', end_ - at_);
      if (quote == nullptr) return false;
      const char* found = static_cast<const char*>(quote);
      const char* before = found;
      while (before > at_ && before[-1] == '\\') --before;
      at_ = found + 1;
      if ((found - before) % 2 == 0) return true;
    }
  }

  // From behind the bracket that opens a list or object to behind the one that closes it.
  bool skip_nested() {
    for (size_t depth = 1; at_ < end_;) {
      switch (*at_++) {
        case '"':
          if (!skip_string()) return false;
          break;
        case '{':
        case '[':
          ++depth;
          break;
        case '}':
        case ']':
          if (--depth == 0) return true;
      }
    }
    return false;
  }

  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  bool colon() {
    skip_space();
    if (at_ == end_ || *at_ != ':') return false;
    ++at_;
    skip_space();
    return true;
  }

  bool value(const char* base) {
    begin = at_ - base;
    if (at_ == end_) return false;
    const char opening = *at_++;
    if (opening != '"' && opening != '{' && opening != '[') return false;
    if (!(opening == '"' ? skip_string() : skip_nested())) return false;
    end = at_ - base;
    return true;
  }
};

}  // namespace fastfront
