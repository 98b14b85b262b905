#pragma once

#include <string_view>

#include <spillway/app/data/image_set.hpp>

namespace spillway::app {

/// Labels go up to here: tables by class stay small whatever a file says.
inline constexpr unsigned kMaxLabel = 999;

/// Parses images from text: a line an image, its pixels row by row and then its label, separated by commas. Pixels are
/// integers of 0 to 255, the label one of 0 to kMaxLabel; an integer may be written 12.0. All lines have one length,
/// and the images are square. A first line whose first field is no number is a header; empty lines are passed over.
/// The peak is the largest pixel of the file. Allocates no more than a few times the text's size.
/// @param label  Names the text in messages.
/// @throws FormatError, naming line and column and what to do: no image, a ragged line, a field that is no integer in
/// range, a number of pixels that is no square.
[[nodiscard]] ImageSet parse_csv(std::string_view text, std::string_view label);

}  // namespace spillway::app
