#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// A value that goes before the file's: `--set key.sub=value`, or a flag.
struct Override {
  std::string key;  ///< Path, parts joined by dots.
  Json value;
};

/// Reads "key.sub=value"; the value is JSON where it is valid JSON and text where it is not.
/// @throws ConfigError where there is no "=", or no key before it.
[[nodiscard]] Override parse_override(std::string_view assignment);

struct ConfigRequest {
  std::string_view text = "{}";              ///< JSON; kept by the caller.
  std::string label = "configuration";       ///< Names `text` in messages.
  std::span<const Override> overrides = {};  ///< Later ones win: first those of --set, then those of flags.
  std::uint64_t world_size = 1;              ///< Ranks.
  bool strict = false;                       ///< An unknown key of DeepSpeed's is an error too.
};

struct ResolvedConfig {
  Config config;
  std::vector<std::string> warnings;  ///< One line each, to be shown once.
};

/// Turns text and overrides into a checked configuration: defaults filled in, old spellings replaced, batch sizes
/// derived, `epochs` and `steps` made exclusive (the later of the two overrides wins over the file), paths resolved.
/// @throws ConfigError, naming the key, what was wanted and what was there: everything that is wrong and can be known
/// from the text alone. Never throws anything else, whatever the text.
[[nodiscard]] ResolvedConfig load_config(const ConfigRequest& request);

/// Reads a configuration file for load_config.
/// @throws IoError if it can't be read; ConfigError if it is larger than a configuration can be.
[[nodiscard]] std::string read_config_file(const std::filesystem::path& path);

/// The configuration as JSON. load_config of its dump gives an equal Config without a warning. The batch of one rank is
/// left out, so that a run can be repeated with the same global batch on another number of ranks.
[[nodiscard]] Json to_json(const Config& config);

/// As to_json(), with the keys that this method or length of run has no use for as well.
[[nodiscard]] Json every_key(const Config& config);

}  // namespace spillway::app
