#pragma once

#include <optional>
#include <ostream>
#include <string>

#include <spillway/app/config/config.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/app/training/initial_weights.hpp>
#include <spillway/app/training/stop_signal.hpp>
#include <spillway/distributed/launch.hpp>

namespace spillway::app {

struct TrainOptions {
  std::ostream& out;                      ///< For the user: what the run decides, its progress and its summary.
  std::optional<unsigned> columns = {};   ///< Of the terminal that `out` is; nothing: plain lines.
  StopSignal* stop = nullptr;             ///< May ask to end after the step that runs; may be null.
  std::optional<std::string> trace = {};  ///< File for a trace of the run (offload::Trace), written when it ends.
  /// A checkpoint, or the folder of a run, whose newest whole checkpoint counts; "auto": config.out, anew where it has
  /// none. Nothing: anew; checkpoints of an earlier run in config.out are put aside.
  std::optional<std::string> resume = {};
  /// A run that starts anew takes these weights first: a checkpoint's, or those of the newest in a run's folder.
  std::optional<std::string> init = {};
  InitialPart init_part = InitialPart::kWeights;
  distributed::RankEnvironment environment = {};  ///< Which rank of how many this process is.
};

/// A whole run, or one rank's part of it: loads the images, makes network, bank and optimizer, says where everything is
/// placed and what each step will move, trains, evaluates before and after. Leaves metrics.jsonl, summary.json and
/// config.json in config.out, which is made where it is missing; a summary that was there goes first. Seeds LibTorch's
/// default generator. Blocks until done, or until a step ended after a stop was asked for: the summary is then that of
/// the steps that were done. Checkpoints are written as config.checkpoint says, at the end, and after a stop; a run
/// that is resumed from one has the weights, bit for bit, that it would have had without the interruption.
///
/// On several ranks each calls it with the same configuration. Rank 0 reports, measures, and writes what is in
/// config.out beside the other ranks' files of a checkpoint; its `resume` counts. They stop together at a signal that
/// one of them gets, which all then have in `stop`. Where one fails, all do.
/// @throws ConfigError for what the configuration can't mean on this version; Error and its kinds for what the machine
/// or the data refuse.
Summary train(const Config& config, const TrainOptions& options);

}  // namespace spillway::app
