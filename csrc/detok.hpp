// Incremental detokenization. The theory is in fastfront/fast/detok.py, whose twin this is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "utf8.hpp"

namespace fastfront {

// What every id stands for: one blob of bytes, and a flag byte and an end offset for each id.
class Vocab {
 public:
  enum Flag : uint8_t { kDefined = 1, kSpecial = 2, kByte = 4, kText = 8 };

  explicit Vocab(bool byte_level, int strip_left) : byte_level_(byte_level), strip_left_(strip_left) { ends_.push_back(0); }

  // `flags` of kDefined, kSpecial, kByte; kText (whole characters only) is found here.
  void add(std::string_view piece, uint8_t flags) {
    if ((flags & kDefined) && is_utf8(piece)) flags |= kText;
    blob_.append(piece);
    ends_.push_back(static_cast<uint32_t>(blob_.size()));
    flags_.push_back(flags);
  }

  size_t size() const { return flags_.size(); }
  bool byte_level() const { return byte_level_; }
  int strip_left() const { return strip_left_; }

  uint8_t flags(int64_t id) const {
    return id >= 0 && static_cast<uint64_t>(id) < flags_.size() ? flags_[static_cast<size_t>(id)] : 0;
  }

  // Only for an id that has a flag.
  std::string_view piece(int64_t id) const {
    const auto at = static_cast<size_t>(id);
    return std::string_view(blob_).substr(ends_[at], ends_[at + 1] - ends_[at]);
  }

 private:
  bool byte_level_;
  int strip_left_;
  std::string blob_;
  std::vector<uint32_t> ends_;
  std::vector<uint8_t> flags_;
};

class Decoder {
 public:
  Decoder(const Vocab* vocab, bool skip_special)
      : vocab_(vocab), strip_(vocab->strip_left()), hidden_(skip_special ? Vocab::kSpecial : 0) {}

  // Sets the state by the ids before the text; they give no text themselves.
  template <typename Ids>
  void seed(const Ids& prompt) {
    std::string tail;
    for (size_t at = prompt.size(); at-- > 0;) {
      const uint8_t flags = visible(prompt[at]);
      if (!flags) continue;
      strip_ = 0;
      if (!vocab_->byte_level() && !(flags & Vocab::kByte)) break;
      tail.insert(0, vocab_->piece(prompt[at]));
      if (tail.size() >= 4) break;
    }
    for (size_t cut = tail.size() > 3 ? tail.size() - 3 : 0; cut < tail.size(); ++cut) {
      if (!begins_character(std::string_view(tail).substr(cut))) continue;
      run_.assign(tail, cut, std::string::npos);
      for (unsigned char byte : run_) state_.feed(byte);
      seeded_ = run_.size();
      break;
    }
  }

  // Appends to `out` the text that one id adds.
  void feed(int64_t id, std::string& out) {
    const uint8_t flags = visible(id);
    if (!flags) return;
    const std::string_view piece = vocab_->piece(id);
    if (strip_ == 0) {
      feed_visible(piece, flags, out);
      return;
    }
    std::string text;
    feed_visible(piece, flags, text);
    strip(text, out);
  }

  // Appends what is still held, at the end of the text.
  void finish(std::string& out) {
    std::string text;
    end_run(text);
    strip(text, out);
  }

 private:
  uint8_t visible(int64_t id) const {
    const uint8_t flags = vocab_->flags(id);
    return (flags & Vocab::kDefined) && !(flags & hidden_) ? flags : 0;
  }

  static bool begins_character(std::string_view bytes) {
    Utf8State state;
    for (unsigned char byte : bytes) {
      if (state.feed(byte) != Utf8State::Verdict::kNeedsMore) return false;
    }
    return !bytes.empty();
  }

  void feed_visible(std::string_view piece, uint8_t flags, std::string& out) {
    if (vocab_->byte_level()) {
      if (run_.empty() && (flags & Vocab::kText)) {
        out.append(piece);
      } else {
        for (unsigned char byte : piece) feed_byte(byte, out);
      }
    } else if (flags & Vocab::kByte) {
      for (unsigned char byte : piece) feed_run(byte, out);
    } else {
      end_run(out);
      if (flags & Vocab::kText) {
        out.append(piece);
      } else {
        for (unsigned char byte : piece) feed_byte(byte, out);
        end_character(out);
      }
    }
  }

  // Byte level: run_ is the unfinished character.
  void feed_byte(uint8_t byte, std::string& out) {
    switch (state_.feed(byte)) {
      case Utf8State::Verdict::kNeedsMore:
        run_.push_back(static_cast<char>(byte));
        break;
      case Utf8State::Verdict::kComplete:
        out.append(run_);
        out.push_back(static_cast<char>(byte));
        run_.clear();
        seeded_ = 0;
        break;
      case Utf8State::Verdict::kInvalid:
        out.append(kReplacement);
        break;
      case Utf8State::Verdict::kInvalidBefore:
        end_character(out);
        feed_byte(byte, out);
        break;
    }
  }

  void end_character(std::string& out) {
    state_.reset();
    if (run_.empty()) return;
    if (!seeded_) out.append(kReplacement);  // what the prompt began and nothing finished is shown by the prompt
    run_.clear();
    seeded_ = 0;
  }

  // Byte fallback: run_ is the unfinished character of a run that is well formed so far.
  void feed_run(uint8_t byte, std::string& out) {
    if (bad_run_) {
      out.append(kReplacement);
      return;
    }
    run_.push_back(static_cast<char>(byte));
    switch (state_.feed(byte)) {
      case Utf8State::Verdict::kNeedsMore:
        break;
      case Utf8State::Verdict::kComplete:
        out.append(run_);
        run_.clear();
        seeded_ = 0;
        break;
      default:
        spoil_run(out);
        bad_run_ = true;
    }
  }

  void spoil_run(std::string& out) {
    for (size_t n = seeded_; n < run_.size(); ++n) out.append(kReplacement);
    run_.clear();
    seeded_ = 0;
    state_.reset();
  }

  void end_run(std::string& out) {
    bad_run_ = false;
    if (vocab_->byte_level()) {
      end_character(out);
    } else {
      spoil_run(out);
    }
  }

  void strip(const std::string& text, std::string& out) {
    if (strip_ == 0 || text.empty()) {
      out.append(text);
      return;
    }
    if (strip_ < 0) {
      strip_ = 0;
      for (char c : text) {
        if (c != ' ') out.push_back(c);
      }
      return;
    }
    size_t at = 0;
    while (strip_ > 0 && at < text.size() && text[at] == ' ') {
      ++at;
      --strip_;
    }
    if (at < text.size()) strip_ = 0;
    out.append(text, at, std::string::npos);
  }

  const Vocab* vocab_;
  int strip_;
  uint8_t hidden_;
  bool bad_run_ = false;
  Utf8State state_;
  std::string run_;
  size_t seeded_ = 0;  // how many bytes of run_ came from the prompt
};

}  // namespace fastfront
