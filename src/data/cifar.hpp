#pragma once

#include <span>

#include <spillway/app/data/idx.hpp>
#include <spillway/app/data/image_set.hpp>

namespace spillway::app {

/// CIFAR-10 has a byte of label in front of each image; CIFAR-100 two, of which the second, finer one counts.
enum class CifarKind : std::uint8_t { kTen, kHundred };

/// Parses files of the binary version of CIFAR-10 or CIFAR-100, one after the other: 32 x 32 pixels in three planes.
/// Allocates no more than the files hold.
/// @throws FormatError naming the file: not a whole number of images, none, or a label out of range.
[[nodiscard]] ImageSet parse_cifar(std::span<const NamedBytes> files, CifarKind kind);

}  // namespace spillway::app
