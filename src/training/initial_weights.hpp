#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <spillway/app/methods/training_method.hpp>

namespace spillway::app {

/// What a run that starts anew takes of a checkpoint.
enum class InitialPart : std::uint8_t {
  kWeights,  ///< Encoder and head with their running statistics, and what else the method trains that is there.
  kEncoder,  ///< The encoder alone, for another head or method.
};

/// Puts weights of a checkpoint, of whatever method and optimizer, into a method that has not begun. A momentum encoder
/// begins as a copy of what was loaded, as it does otherwise. Values are cast where the types differ.
/// @param path  A checkpoint's folder, or a run's: its newest whole one.
/// @returns a line that says what was taken from where.
/// @throws Error where there is no whole checkpoint, or a tensor of the part is missing there or of another size: then
/// nothing has changed; IoError.
std::string load_initial_weights(const std::filesystem::path& path, InitialPart part, TrainingMethod& method);

}  // namespace spillway::app
