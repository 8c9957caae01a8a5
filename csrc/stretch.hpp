// A stretch of text that no parser must see. The contract is in fastfront/fast/stretch.py.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "nest.hpp"
#include "scan.hpp"

namespace fastfront {

class Stretch {
 public:
  // `markers` and `nest` may be null and must outlive this.
  Stretch(const Patterns* markers, std::string_view trail, bool once, Nest* nest, std::string_view lead,
          std::string_view blank)
      : once_(once), nest_(nest), lead_(lead), blank_(blank) {
    if (markers) scanner_.emplace(markers);
    for (char c : trail) trail_[static_cast<uint8_t>(c)] = true;
    if (nest_) told_ = *nest_;
  }

  // Takes a piece; false where a marker, the nest's end or what may be white space lies in it.
  bool feed(std::string_view piece) {
    text_.append(piece);
    if (nest_) {
      for (size_t at = 0; at < piece.size() && !nest_->done(); ++at) nest_->feed(static_cast<uint8_t>(piece[at]));
      return !nest_->done();
    }
    if (scanner_ && scanner_->scan(piece, true).which >= 0) return false;
    if (begun_ || blank_.empty()) return true;
    blanks_ = std::min(text_.find_first_not_of(blank_, blanks_), ready());
    return blanks_ == ready() || !(text_[blanks_] & 0x80);
  }

  // What may go out now.
  std::string_view certain() {
    size_t end = ready();
    if (!begun_) {
      size_t lead = std::min(text_.find_first_not_of(lead_), end);
      text_.erase(0, lead);
      end -= lead;
      blanks_ -= std::min(lead, blanks_);
      if (blanks_ == end) return {};
    }
    if (once_) {
      if (end && trails(end)) --end;
    } else {
      while (end && trails(end)) --end;
    }
    return std::string_view(text_).substr(0, end);
  }

  // The first `size` bytes have gone out.
  void taken(size_t size) {
    begun_ |= size > 0;
    text_.erase(0, size);
    if (nest_) told_ = *nest_;
  }

  // Ends the stretch: all that has not gone out. The nest is set back to where that begins.
  const std::string& end() {
    if (nest_) *nest_ = *told_;
    return text_;
  }

 private:
  size_t ready() const { return text_.size() - (scanner_ ? scanner_->held() : 0); }
  bool trails(size_t end) const { return trail_[static_cast<uint8_t>(text_[end - 1])]; }

  std::optional<Scanner> scanner_;
  std::array<bool, 256> trail_{};
  bool once_;
  bool begun_ = false;  // some text has gone out
  Nest* nest_;
  std::string lead_;
  std::string blank_;
  size_t blanks_ = 0;  // the beginning that is blank, until some text has gone out
  std::optional<Nest> told_;
  std::string text_;
};

}  // namespace fastfront
