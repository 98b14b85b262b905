#include <spillway/app/data/csv.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::size_t kShownFieldCharacters = 20;
constexpr std::uint32_t kMaxPixels = 1U << 24U;

std::string_view trimmed(std::string_view field) {
  const std::size_t first = field.find_first_not_of(" \t\r");
  return first == std::string_view::npos ? std::string_view()
                                         : field.substr(first, field.find_last_not_of(" \t\r") - first + 1);
}

/// Cuts the next part off the front of `rest`, up to `separator` or the end.
std::string_view cut(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

/// An integer of 0 to `max`; "12.0" counts as one.
std::optional<std::uint16_t> integer_field(std::string_view field, unsigned max) {
  field = trimmed(field);
  unsigned value = 0;
  const char* end = field.data() + field.size();
  const auto parsed = std::from_chars(field.data(), end, value);
  if (parsed.ec != std::errc() || value > max) {
    return std::nullopt;
  }
  const std::string_view rest(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  if (!rest.empty() && (rest.front() != '.' || rest.find_first_not_of('0', 1) != std::string_view::npos)) {
    return std::nullopt;
  }
  return static_cast<std::uint16_t>(value);
}

bool looks_numeric(std::string_view field) {
  field = trimmed(field);
  double value = 0.0;
  return std::from_chars(field.data(), field.data() + field.size(), value).ptr != field.data();
}

class CsvParser {
 public:
  CsvParser(std::string_view text, std::string_view label) : rest_(text), label_(label) {}

  ImageSet parse() {
    while (!rest_.empty()) {
      ++line_number_;
      const std::string_view line = trimmed(cut(rest_, '\n'));
      if (!line.empty() && !is_header(line)) {
        parse_line(line);
      }
    }
    if (set_.labels.empty()) {
      throw FormatError(std::string(label_) + ": no image in it; wanted lines of comma-separated pixels and a label");
    }
    set_.peak = std::max<std::uint8_t>(1, std::ranges::max(set_.pixels));
    return std::move(set_);
  }

 private:
  bool is_header(std::string_view line) const {
    return line_number_ == 1 && !looks_numeric(line.substr(0, line.find(',')));
  }

  void parse_line(std::string_view line) {
    if (set_.labels.empty()) {
      take_geometry(line);
    } else if (set_.labels.size() == std::numeric_limits<std::uint32_t>::max()) {
      fail("more images than are supported");
    }
    std::string_view fields = line;
    for (std::uint32_t column = 0; column < set_.image_numel(); ++column) {
      const std::string_view field = next_field(fields, column, line);
      const auto value = integer_field(field, 255);
      set_.pixels.push_back(static_cast<std::uint8_t>(value ? *value : fail_field(column, field, 255, "pixel")));
    }
    const std::string_view field = next_field(fields, set_.image_numel(), line);
    if (!fields.empty() || line.back() == ',') {
      fail_ragged(line);
    }
    const auto value = integer_field(field, kMaxLabel);
    set_.labels.push_back(value ? *value : fail_field(set_.image_numel(), field, kMaxLabel, "label"));
  }

  void take_geometry(std::string_view line) {
    const auto pixels = static_cast<std::uint64_t>(std::ranges::count(line, ','));
    const auto side = static_cast<std::uint64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
    if (pixels == 0 || pixels > kMaxPixels || side * side != pixels) {
      fail("it has " + std::to_string(pixels) +
           " values before the last one, the label, and that is no square image; wanted 64, 784, …");
    }
    set_.width = set_.height = static_cast<std::uint32_t>(side);
  }

  std::string_view next_field(std::string_view& fields, std::uint32_t column, std::string_view line) const {
    if (fields.empty() && column > 0) {
      fail_ragged(line);
    }
    return cut(fields, ',');
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(std::string(label_) + ", line " + std::to_string(line_number_) + ": " + what);
  }

  [[noreturn]] void fail_ragged(std::string_view line) const {
    fail("wanted " + std::to_string(set_.image_numel() + 1) + " values as in the first image, got " +
         std::to_string(1 + std::ranges::count(line, ',')) + "; the file may have been cut short: copy it again");
  }

  [[noreturn]] std::uint16_t fail_field(std::uint32_t column, std::string_view field, unsigned max,
                                        const std::string& meaning) const {
    fail("column " + std::to_string(column + 1) + ", a " + meaning + ": wanted an integer of 0 to " +
         std::to_string(max) + ", got \"" + std::string(trimmed(field).substr(0, kShownFieldCharacters)) + "\"");
  }

  std::string_view rest_;
  std::string_view label_;
  std::size_t line_number_ = 0;
  ImageSet set_;
};

}  // namespace

ImageSet parse_csv(std::string_view text, std::string_view label) { return CsvParser(text, label).parse(); }

}  // namespace spillway::app
