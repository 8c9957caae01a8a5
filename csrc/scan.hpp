// Finds the first of several strings in a text that comes in pieces. The theory is in fastfront/fast/scan.py.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fastfront {

struct Pattern {
  explicit Pattern(std::string_view bytes) : text(bytes), fail(bytes.size() + 1, 0) {
    uint32_t length = 0;
    for (size_t at = 1; at < text.size(); ++at) {
      while (length && text[at] != text[length]) length = fail[length];
      if (text[at] == text[length]) ++length;
      fail[at + 1] = length;
    }
  }

  std::string text;
  std::vector<uint32_t> fail;  // fail[n]: the longest proper prefix of text that ends its first n bytes
};

class Patterns {
 public:
  void add(std::string_view bytes) {
    patterns_.emplace_back(bytes);
    begins_[static_cast<uint8_t>(bytes[0])] = true;
  }

  size_t size() const { return patterns_.size(); }
  const Pattern& operator[](size_t which) const { return patterns_[which]; }
  bool begins(uint8_t byte) const { return begins_[byte]; }

 private:
  std::vector<Pattern> patterns_;
  std::array<bool, 256> begins_{};
};

struct Match {
  int which = -1;    // the pattern, or -1
  size_t end = 0;    // offset in the piece of the match's end
};

class Scanner {
 public:
  explicit Scanner(const Patterns* patterns) : patterns_(patterns), states_(patterns->size(), 0) {}

  // Within the piece the match that starts first wins, of those the one that ends first.
  Match scan(std::string_view piece, bool armed) {
    Match best;
    int64_t best_start = 0;
    const size_t count = states_.size();
    for (size_t at = 0; at < piece.size();) {
      const auto byte = static_cast<uint8_t>(piece[at++]);
      if (idle_ && !patterns_->begins(byte)) continue;
      int64_t live_start = INT64_MAX;  // of the earliest match that may still come
      idle_ = true;
      for (size_t which = 0; which < count; ++which) {
        const Pattern& pattern = (*patterns_)[which];
        uint32_t state = states_[which];
        while (state && (state == pattern.text.size() || static_cast<uint8_t>(pattern.text[state]) != byte)) {
          state = pattern.fail[state];
        }
        if (static_cast<uint8_t>(pattern.text[state]) == byte) ++state;
        states_[which] = state;
        if (!state) continue;
        idle_ = false;
        const int64_t start = static_cast<int64_t>(at) - state;
        if (state < pattern.text.size()) {
          live_start = std::min(live_start, start);
        } else if (armed && (best.which < 0 || start < best_start)) {
          best.which = static_cast<int>(which);
          best.end = at;
          best_start = start;
        }
      }
      if (best.which >= 0 && live_start >= best_start) break;
    }
    held_ = 0;
    for (size_t which = 0; which < count; ++which) {
      const Pattern& pattern = (*patterns_)[which];
      if (states_[which] == pattern.text.size()) states_[which] = pattern.fail[states_[which]];
      if (states_[which] > held_) held_ = states_[which];
    }
    return best;
  }

  // Bytes at the end of what was scanned that may still become a match.
  size_t held() const { return held_; }

  void reset() {
    states_.assign(states_.size(), 0);
    held_ = 0;
    idle_ = true;
  }

 private:
  const Patterns* patterns_;
  std::vector<uint32_t> states_;
  size_t held_ = 0;
  bool idle_ = true;
};

}  // namespace fastfront
