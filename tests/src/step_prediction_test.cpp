#include <spillway/app/training/step_prediction.hpp>

#include <gtest/gtest.h>

#include <spillway/app/probe/gpu_probe.hpp>

namespace spillway::app::step_prediction_test {
namespace {

using offload::Tier;

MachineProbe machine() {
  MachineProbe probe;
  probe.memory_read_rate = 20.0;
  probe.memory_copy_rate = 10.0;
  probe.disks = {{.folder = "a", .write_rate = 4.0, .read_rate = 2.0},
                 {.folder = "b", .write_rate = 1.0, .read_rate = 1.0}};
  return probe;
}

const std::vector<PlacementRow> kPlacement{
    {"optimizer state, resident", Tier::kHost, 100}, {"optimizer state, staging buffers", Tier::kHost, 1000},
    {"optimizer state, streamed", Tier::kDisk, 200}, {"bank, newest segments", Tier::kHost, 40},
    {"bank, tile of a scan", Tier::kHost, 1000},     {"bank, cold segments", Tier::kDisk, 60}};

double seconds(const StepPrediction& prediction, const std::string& name) {
  for (const LinkTime& link : prediction.links) {
    if (link.name == name) return link.seconds;
  }
  return -1.0;
}

TEST(StepPrediction, DividesTheBytesOfEachLinkByItsRate) {
  const StepPrediction prediction = predict_step(machine(), kPlacement, {.read = 30, .written = 10}, 2, 1.0);
  EXPECT_DOUBLE_EQ(seconds(prediction, "disk"), 30.0 / 3.0 + 10.0 / 5.0);
  EXPECT_DOUBLE_EQ(seconds(prediction, "host memory"), 300.0 / 10.0 + 2 * 100.0 / 20.0);
  EXPECT_DOUBLE_EQ(seconds(prediction, "compute"), 1.0);
}

TEST(StepPrediction, NamesTheLongest) {
  EXPECT_EQ(predict_step(machine(), kPlacement, {.read = 3000, .written = 0}, 1, 1.0).limiting().name, "disk");
  EXPECT_EQ(predict_step(machine(), kPlacement, {.read = 3, .written = 0}, 1, 1.0).limiting().name, "host memory");
  EXPECT_EQ(predict_step(machine(), kPlacement, {.read = 3, .written = 0}, 1, 99.0).limiting().name, "compute");
}

TEST(StepPrediction, NeedsNoDiskWhereNothingMovesThere) {
  MachineProbe probe = machine();
  probe.disks.clear();
  EXPECT_DOUBLE_EQ(seconds(predict_step(probe, kPlacement, {}, 1, 1.0), "disk"), 0.0);
}

TEST(GpuProbe, MeasuresALink) {
  const GpuProbe probe = probe_link(c10::Device(c10::kCPU));
  EXPECT_GT(probe.to_device_rate, 0.0);
  EXPECT_GT(probe.to_host_rate, 0.0);
}

}  // namespace
}  // namespace spillway::app::step_prediction_test
