// NCCL's calls in the ledger, from made-up logs.
#include "collectives_job.h"

extern "C" {
#include "storage/log/nccl_payload.h"
}

#include <cstring>

using namespace collectives;

namespace {

TEST_F(Collectives, ACallHasItsSizeReductionAndPlaceAndTheTimeOfTheKernelThatItLaunched) {
  {
    Job job(directory / "host-1");
    job.schemas().log.module(1, 0, "", "Model", SL_MODULE_FSDP | SL_MODULE_ROOT);
    job.log.module(2, 1, "layers.0", "Block", SL_MODULE_FSDP, 1);
    auto &main = job.thread();
    main.at(100).range_start(1, "step 7", SL_KIND_step, 7).range_push("Model", SL_KIND_forward, 1);
    main.at(110).range_push("FSDP::all_gather (layers.0)", SL_KIND_record_function);
    job.all_gather(120, 4096, 51);
    main.at(130).range_pop();
    job.at(140).push("ncclReduceScatter").payload(7, {kCommunicator, 512, 4}).launch(52).at(145).pop();
    main.range_pop();
    job.kernel(52, 300, 400, kReduceScatter).kernel(51, 150, 250, kAllGather);
    main.at(500).range_end(1);
  }
  build();
  EXPECT_EQ(
      rows("SELECT seq, operation, bytes, reduction, m.fqn, c.step, p.name, c.tid, enqueue_ns, c.start_ns, c.end_ns, "
           "stream, kernel_calls, joined_by FROM collective c LEFT JOIN module m ON m.id = c.module_id "
           "LEFT JOIN phase p ON p.id = c.phase_id ORDER BY c.id"),
      (Rows{"0|AllGather|4096||layers.0|7|FSDP::all_gather (layers.0)|1001|120|150|250|19|1|correlation",
            "1|ReduceScatter|512|Avg||7|Model|1001|140|300|400|19|1|correlation"}));
}

TEST_F(Collectives, LayoutsComeFromWhatNcclRegisteredNotFromItsVersion) {
  {
    Job job(directory / "host-1");
    job.entry(4, kInt, 4, "Message size [bytes]"); // another width, another place
    job.entry(4, kUint64, 8, "NCCL communicator ID");
    job.entry(4, kUint64, 0, "Something new");
    job.at(100).push("ncclAllGather").payload(4, {uint64_t(77) << 32 | 5, 99}).pop();
  }
  build();
  EXPECT_EQ(rows("SELECT comm, bytes FROM collective"), (Rows{"99|77"}));
}

TEST_F(Collectives, WithoutSchemasTheLengthTellsOldLayoutsFromNew) {
  {
    Job job(directory / "host-1");
    job.at(100).push("ncclAllReduce").payload(5, {4096, 2}).pop(); // 2.19 to 2.24
    job.at(110).push("ncclAllReduce").payload(5, {12, 8192, 1}).pop();
    job.at(120).push("ncclSend").payload(9, {12, 64, 3}).pop();
    job.at(130).push("ncclAllGather").payload(4, {1, 2, 3, 4}).pop(); // no layout is this long
    job.at(140).push("ncclAllGather").payload(99, {1, 2}).pop();
  }
  build();
  EXPECT_EQ(rows("SELECT operation, comm, seq, bytes, reduction, peer FROM collective ORDER BY id"),
            (Rows{"AllReduce|||4096|Max|", "AllReduce|12|0|8192|Product|", "Send|12|0|64||3", "AllGather|||||",
                  "AllGather|||||"}));
}

TEST_F(Collectives, APayloadThatIsTooShortLeavesItsFieldsUnknown) {
  {
    Job job(directory / "host-1");
    job.schemas();
    job.at(100).push("ncclReduceScatter").payload(7, {kCommunicator, 64}).pop();
    job.at(110).push("ncclReduceScatter").payload(7, {}).pop();
    job.entry(6, kUint64, UINT64_MAX - 3, "NCCL communicator ID"); // wraps around
    job.at(120).push("ncclBroadcast").payload(6, {1, 2, 3}).pop();
  }
  build();
  EXPECT_EQ(rows("SELECT operation, comm IS NULL, bytes, reduction FROM collective ORDER BY id"),
            (Rows{"ReduceScatter|0|64|", "ReduceScatter|1||", "Broadcast|1||"}));
}

TEST_F(Collectives, AReductionThatTheProgramMadeHasNoName) {
  {
    Job job(directory / "host-1");
    job.schemas().at(100).push("ncclAllReduce").payload(5, {kCommunicator, 64, 0x7fff0000}).pop();
  }
  build();
  EXPECT_EQ(rows("SELECT bytes, reduction FROM collective"), (Rows{"64|"}));
}

TEST_F(Collectives, CallsOfAGroupShareTheKernelThatTheGroupsEndLaunched) {
  {
    Job job(directory / "host-1");
    job.schemas().at(100).push("ncclGroupStart").pop();
    job.at(110).push("ncclSend").payload(9, {kCommunicator, 64, 1}).pop();
    job.at(120).push("ncclRecv").payload(10, {kCommunicator, 64, 3}).pop();
    job.at(130).push("ncclGroupEnd").launch(51).pop();
    job.all_gather(140, 64, 52);
    job.kernel(51, 200, 300, kSendRecv).kernel(52, 300, 310, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT operation, peer, seq, start_ns, end_ns, kernel_calls FROM collective ORDER BY id"),
            (Rows{"Send|1|0|200|300|2", "Recv|3|0|200|300|2", "AllGather||0|300|310|1"}));
}

TEST_F(Collectives, KernelsOfOneGroupGoToTheCallsThatTheyAreNamedAfter) {
  {
    Job job(directory / "host-1");
    job.schemas();
    job.at(100).push("ncclAllGather").payload(4, {kCommunicator, 64}).pop();
    job.at(110).push("ncclReduceScatter").payload(7, {kCommunicator, 64, 0}).pop();
    job.at(130).push("ncclGroupEnd").launch(51).launch(52).pop();
    job.kernel(51, 200, 300, kReduceScatter).kernel(52, 300, 310, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT operation, start_ns, end_ns, kernel_calls FROM collective ORDER BY id"),
            (Rows{"AllGather|300|310|1", "ReduceScatter|200|300|1"}));
}

TEST_F(Collectives, KernelsOfTwoCommunicatorsInOneGroupThatCannotBeToldApartAreNotGuessed) {
  {
    Job job(directory / "host-1");
    job.schemas();
    job.at(100).push("ncclAllGather").payload(4, {1, 64}).pop();
    job.at(110).push("ncclAllGather").payload(4, {2, 64}).pop();
    job.at(130).push("ncclGroupEnd").launch(51).launch(52).pop();
    job.kernel(51, 200, 300, kAllGather).kernel(52, 300, 310, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT comm, start_ns, joined_by FROM collective ORDER BY id"), (Rows{"1||", "2||"}));
}

TEST_F(Collectives, TheProfilerTellsWhichOfThemRanWhichCall) {
  {
    Job job(directory / "host-1");
    job.schemas();
    auto called = [&](uint64_t communicator) {
      job.thread().append(sl_event_nccl_call{communicator, 0, 64, 0, 0, job.log.string("AllGather"),
                                             job.log.string("ncclInt8"), job.log.string("RING"), job.log.string("LL"),
                                             0, 24, 0});
    };
    job.at(100).push("ncclAllGather").payload(4, {1, 64}).pop();
    job.at(110).push("ncclAllGather").payload(4, {2, 64}).pop();
    job.at(130).push("ncclGroupEnd").launch(51);
    called(2);
    job.launch(52);
    called(1);
    job.pop().kernel(51, 200, 300, kAllGather, 7).kernel(52, 300, 310, kAllGather, 8);
  }
  build();
  EXPECT_EQ(
      rows("SELECT comm, start_ns, stream, kernel_calls, algorithm, protocol, channels FROM collective ORDER BY id"),
      (Rows{"1|300|8|1|RING|LL|24", "2|200|7|1|RING|LL|24"}));
}

TEST_F(Collectives, ACallThatLaunchesByItselfLeavesEarlierOnesWithoutATime) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(100, 1);
    job.all_gather(110, 2, 51).kernel(51, 200, 300, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT bytes, start_ns FROM collective ORDER BY id"), (Rows{"1|", "2|200"}));
}

TEST_F(Collectives, AKernelThatNeverEndedHasAStartAlone) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(100, 64, 51);
    job.thread(9).at(1000).append(sl_event_kernel{200, 0, job.log.string(kAllGather), 51, 19, 0, 1});
  }
  build();
  EXPECT_EQ(rows("SELECT start_ns, end_ns, joined_by FROM collective"), (Rows{"200||correlation"}));
}

TEST_F(Collectives, WithoutLaunchesTheNthCallIsTheNthKernelOfItsName) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(1'000'000, 1).all_gather(1'000'010, 2);
    job.at(1'000'020).push("ncclReduceScatter").payload(7, {kCommunicator, 3, 0}).pop();
    job.kernel(0, 2'000'300, 2'000'400, kAllGather).kernel(0, 2'000'200, 2'000'250, kAllGather);
    job.kernel(0, 2'000'250, 2'000'300, kReduceScatter, 23);
    job.kernel(0, 2'000'000, 2'000'100, "void at::native::elementwise_kernel()");
  }
  build();
  EXPECT_EQ(rows("SELECT bytes, start_ns - 2000000, joined_by FROM collective ORDER BY id"),
            (Rows{"1|200|order", "2|300|order", "3|250|order"}));
}

TEST_F(Collectives, ByOrderNothingIsJoinedWhenKernelsAreMissingOrOnSeveralStreamsOrTooEarly) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(1'000'000, 1).all_gather(1'000'010, 2);
    job.kernel(0, 2'000'200, 2'000'250, kAllGather); // one is missing
    for (int i = 0; i < 2; i++) {
      job.at(1'000'020).push("ncclReduceScatter").payload(7, {kCommunicator, 3, 0}).pop();
      job.kernel(0, 2'000'250, 2'000'300, kReduceScatter, 20 + i); // which of them was first?
    }
    job.at(3'000'000).push("ncclSend").payload(9, {kCommunicator, 4, 1}).pop();
    job.kernel(0, 2'000'250, 2'000'300, kSendRecv); // a millisecond before its call
  }
  build();
  EXPECT_EQ(rows("SELECT count(*), count(start_ns), count(joined_by) FROM collective"), (Rows{"5|0|0"}));
}

TEST_F(Collectives, SendsAndReceivesAreCountedWithTheirPeerAndDoNotDisturbTheCollectivesCount) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(100, 1);
    for (uint64_t peer : {1, 2, 1})
      job.at(110).push("ncclSend").payload(9, {kCommunicator, 4, peer}).pop();
    job.at(120).push("ncclRecv").payload(10, {kCommunicator, 4, 1}).pop();
    job.all_gather(130, 1).all_gather(140, 1, 0, 5);
  }
  build();
  EXPECT_EQ(rows("SELECT operation, coalesce(peer, '-'), seq FROM collective ORDER BY id"),
            (Rows{"AllGather|-|0", "Send|1|0", "Send|2|0", "Send|1|1", "Recv|1|0", "AllGather|-|1", "AllGather|-|0"}));
}

TEST_F(Collectives, ACommunicatorHasItsRanksAndTheMemoryOfItsInitialisationAndItsCalls) {
  {
    Job job(directory / "host-1");
    job.schemas().at(100).push("ncclCommInitRankConfig").memory(0x1000, 100).memory(0x2000, 20);
    job.memory(0x3000, 1000, "libcublas.so.13").memory(0x4000, 1000, "libnccl.so.2", SL_MEMORY_PINNED);
    job.memory(0x5000, 1000, "libnccl.so.2", SL_MEMORY_UNKNOWN).at(110).pop();
    job.payload(11, {kCommunicator, uint64_t(1) << 32 | 4});
    job.at(120).push("ncclAllGather").payload(4, {kCommunicator, 64});
    job.on(3).at(125).memory(0x6000, 3); // a thread of NCCL's own
    job.on(1).at(130).pop();
    job.thread().at(140).append(sl_event_driver_free{0x1000, 0, 0, job.log.string("cuMemUnmap")});
    job.memory(0x7000, 50);
  }
  build();
  EXPECT_EQ(rows("SELECT printf('%x', comm), nranks, comm_rank, device_bytes FROM communicator"),
            (Rows{"abcdef0123456789|4|1|123"}));
}

TEST_F(Collectives, ACommunicatorHasTheTimeOfItsInitialisationAlsoWhenItTellsItsIdAtTheEnd) {
  {
    Job job(directory / "host-1");
    job.schemas().at(100).push("ncclCommInitRankConfig").at(170).pop().payload(11, {1, 2});
    job.at(200).push("ncclAllGather").payload(4, {7, 64}).at(210).pop(); // recording began behind this one's
  }
  build();
  EXPECT_EQ(rows("SELECT comm, start_ns, end_ns FROM communicator ORDER BY comm"), (Rows{"1|100|170", "7||"}));
}

TEST_F(Collectives, MemoryOfSeveralCommunicatorsIsKeptApart) {
  {
    Job job(directory / "host-1");
    job.schemas().at(100).push("ncclCommInitRankConfig").memory(0x1000, 100).pop().payload(11, {1, 2});
    job.at(110).push("ncclCommSplit").memory(0x2000, 20).pop().payload(11, {2, 2});
    job.at(120).push("ncclAllGather").payload(4, {1, 64});
    job.on(2).at(121).push("ncclAllGather").payload(4, {2, 64});
    job.on(3).at(122).memory(0x3000, 1000); // for which of them?
    job.on(2).at(123).memory(0x4000, 7);
  }
  build();
  EXPECT_EQ(rows("SELECT comm, nranks, device_bytes FROM communicator ORDER BY comm"), (Rows{"1|2|100", "2|2|27"}));
}

TEST_F(Collectives, AnInitialisationThatDoesNotTellItsIdIsTheNextNewCommunicators) {
  {
    Job job(directory / "host-1");
    job.schemas().at(100).push("ncclCommInitRankConfig").memory(0x1000, 100).pop().all_gather(110, 64);
  }
  build();
  EXPECT_EQ(rows("SELECT printf('%x', comm), nranks, device_bytes FROM communicator"), (Rows{"abcdef0123456789||100"}));
}

TEST_F(Collectives, WhereNvtxIsOffTheProfilersCallsStandAlone) {
  {
    Job job(directory / "host-1");
    auto &main = job.thread();
    main.at(90).append(sl_event_nccl_communicator{kCommunicator, 2, 1, job.log.string("data"), 0});
    auto called = [&](const char *function, uint64_t count, uint32_t root, bool p2p) {
      main.append(sl_event_nccl_call{kCommunicator, 0, count, 0, 0, job.log.string(function),
                                     job.log.string("ncclBfloat16"), p2p ? 0 : job.log.string("TREE"), 0, root, 2,
                                     p2p});
    };
    job.at(100).launch(51).at(101);
    called("Broadcast", 32, 1, false);
    job.at(110).launch(52).at(111);
    called("Send", 4, 0, true);
    called("Recv", 4, 0, true);
    job.kernel(51, 200, 210, "ncclDevKernel_Broadcast_RING_LL(x)").kernel(52, 210, 250, kSendRecv);
  }
  build();
  EXPECT_EQ(rows("SELECT operation, bytes, datatype, algorithm, root, peer, seq, enqueue_ns, start_ns, kernel_calls "
                 "FROM collective ORDER BY id"),
            (Rows{"Broadcast|64|ncclBfloat16|TREE|1||0|100|200|1", "Send|8|ncclBfloat16|||0|0|110|210|2",
                  "Recv|8|ncclBfloat16|||0|0|110|210|2"}));
  EXPECT_EQ(rows("SELECT nranks, comm_rank, name FROM communicator"), (Rows{"2|1|data"}));
}

TEST_F(Collectives, BuffersAreTheAllocationsAtTheAddressesThatTheProfilerTells) {
  {
    Job job(directory / "host-1");
    auto &main = job.schemas().thread();
    main.at(10).allocator(SL_SEGMENT_ALLOC, 0x100000, 2 << 20).allocator(SL_ALLOC, 0x100000, 1024);
    main.allocator(SL_ALLOC, 0x100400, 1024).allocator(SL_ALLOC, 0x100800, 512);
    job.at(100).push("ncclAllGather").payload(4, {kCommunicator, 512}).launch(51);
    main.append(sl_event_nccl_call{kCommunicator, 0, 512, 0x100600, 0x100000, job.log.string("AllGather"),
                                   job.log.string("ncclInt8"), 0, 0, 0, 0, 0});
    job.pop();
  }
  build();
  EXPECT_EQ(rows("SELECT s.address, r.address FROM collective c JOIN allocation s ON s.id = c.send_allocation_id "
                 "JOIN allocation r ON r.id = c.receive_allocation_id"),
            (Rows{std::to_string(0x100400) + "|" + std::to_string(0x100000)}));
}

TEST_F(Collectives, BuffersFromBeforeRecordingBeganAreNotThoseThatASnapshotShowsLater) {
  {
    Job job(directory / "host-1");
    auto &main = job.schemas().thread();
    job.log.definitions().at(500);
    job.log.define(sl_event_allocator_restore{0, 1, 1, 0});
    job.log.define(sl_event_allocator_existing{0x100000, 2 << 20, 1024, 0, job.log.place(0), SL_BLOCK_ALLOCATED, 1});
    for (uint64_t time : {100, 600}) {
      job.at(time).push("ncclAllGather").payload(4, {kCommunicator, 512}).launch(uint32_t(time));
      main.append(sl_event_nccl_call{kCommunicator, 0, 512, 0x100600, 0x100000, job.log.string("AllGather"),
                                     job.log.string("ncclInt8"), 0, 0, 0, 0, 0});
      job.pop();
    }
  }
  build();
  EXPECT_EQ(
      rows("SELECT enqueue_ns, send_allocation_id IS NULL, receive_allocation_id IS NULL FROM collective ORDER BY 1"),
      (Rows{"100|1|1", "600|0|0"}));
}

TEST_F(Collectives, InFsdpsRangesBuffersAreFoundBySizeUnlessThereAreTwoOfIt) {
  {
    Job job(directory / "host-1");
    auto &main = job.schemas().thread();
    job.log.module(1, 0, "", "Model", SL_MODULE_FSDP | SL_MODULE_ROOT);
    main.at(10).allocator(SL_SEGMENT_ALLOC, 0x100000, 2 << 20).range_push("Model", SL_KIND_forward, 1);
    main.at(20).range_push("FSDP::all_gather", SL_KIND_record_function).allocator(SL_ALLOC, 0x100000, 1024);
    job.all_gather(30, 512);
    main.at(40).allocator(SL_ALLOC, 0x100400, 1024);
    job.all_gather(50, 512);
    main.at(60).range_pop();
    job.all_gather(70, 512);
  }
  build();
  EXPECT_EQ(rows("SELECT a.address FROM collective c LEFT JOIN allocation a ON a.id = c.receive_allocation_id "
                 "ORDER BY c.id"),
            (Rows{std::to_string(0x100000), "", ""}));
}

TEST_F(Collectives, ArrivalsOfRanksAreComparedAndTheLastOneIsNamed) {
  for (int rank = 0; rank < 2; rank++) {
    Job job(directory / ("host-" + std::to_string(rank)), rank);
    job.schemas();
    for (uint64_t i = 0; i < 3; i++) {
      uint64_t late = rank == 1 && i < 2 ? 40 : 10;
      job.all_gather(1000 * (i + 1), 300, 50 + i)
          .kernel(50 + i, 1000 * (i + 1) + late, 1000 * (i + 1) + 100, kAllGather);
    }
  }
  build();
  EXPECT_EQ(
      rows("SELECT seq, rank, late_ns, spread_ns, is_last, transfer_ns, algorithm_bytes, cast(bus_bytes AS INTEGER) "
           "FROM collective_cost WHERE seq < 2 ORDER BY seq, rank"),
      (Rows{"0|0|0|30|0|60.0|600|300", "0|1|30|30|1|60.0|600|300", "1|0|0|30|0|60.0|600|300",
            "1|1|30|30|1|60.0|600|300"}));
  EXPECT_EQ(rows("SELECT rank, collectives, last, others_waited_ns FROM straggler ORDER BY rank"),
            (Rows{"0|3|0|0", "1|3|2|60"}))
      << "at a tie nobody is last";
}

TEST_F(Collectives, ACollectiveWithoutTheTimeOfOneOfItsRanksHasNoTransfer) {
  for (int rank = 0; rank < 2; rank++) {
    Job job(directory / ("host-" + std::to_string(rank)), rank);
    job.schemas();
    job.all_gather(1000, 300, 50).kernel(50, 1010, 1100, kAllGather);
    job.all_gather(2000, 300, 51);
    if (rank == 1)
      job.kernel(51, 2010, 9000, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT seq, rank, share_ns, transfer_ns FROM collective_cost ORDER BY seq, rank"),
            (Rows{"0|0|90.0|90.0", "0|1|90.0|90.0", "1|0||", "1|1|6990.0|"}))
      << "rank 1 may have waited for rank 0 all the time";
}

TEST_F(Collectives, NobodyIsLateWhereTheArrivalOfOneRankIsNotKnown) {
  for (int rank = 0; rank < 3; rank++) {
    Job job(directory / ("host-" + std::to_string(rank)), rank);
    job.schemas();
    job.all_gather(1000, 300, 50).kernel(50, 1010 + rank, 1100, kAllGather);
    job.all_gather(2000, 300, 51);
    if (rank < 2)
      job.kernel(51, 2010 + rank, 2100, kAllGather);
  }
  build();
  EXPECT_EQ(
      rows("SELECT seq, rank, late_ns, spread_ns, is_last, others_waited_ns FROM collective_cost ORDER BY seq, rank"),
      (Rows{"0|0|0|2|0|", "0|1|1|2|0|", "0|2|2|2|1|3", "1|0|||0|", "1|1|||0|", "1|2|||0|"}))
      << "rank 2 may have come later than rank 1";
  EXPECT_EQ(rows("SELECT rank, collectives, last FROM straggler ORDER BY rank"), (Rows{"0|1|0", "1|1|0", "2|1|1"}));
}

TEST_F(Collectives, ClocksOfHostsAreAlignedByTheEndsOfCollectives) {
  constexpr uint64_t offset = 5'000'000;
  for (int rank = 0; rank < 2; rank++) {
    Job job(directory / ("host-" + std::to_string(rank)), rank, rank ? "beta" : "alpha");
    job.schemas();
    for (uint64_t i = 0; i < 5; i++) {
      uint64_t zero = 1000 * (i + 1) + (rank ? offset : 0);
      job.all_gather(zero, 300, 50 + i).kernel(50 + i, zero + (rank ? 40 : 10), zero + 100, kAllGather);
    }
  }
  build();
  EXPECT_EQ(rows("SELECT host, offset_ns FROM host_clock ORDER BY host"), (Rows{"alpha|0", "beta|5000000"}));
  EXPECT_EQ(rows("SELECT DISTINCT spread_ns FROM collective_cost"), (Rows{"30"}));
}

TEST_F(Collectives, HostsThatShareNoCollectiveAreLeftOutOfTheSpread) {
  for (int rank = 0; rank < 2; rank++) {
    Job job(directory / ("host-" + std::to_string(rank)), rank, rank ? "beta" : "alpha");
    job.schemas().all_gather(100, 300, 51).kernel(51, 200, rank ? 300 : 0, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT count(*), count(spread_ns) FROM collective_cost"), (Rows{"2|0"}));
}

TEST_F(Collectives, ALogThatEndsInsideOfACallKeepsIt) {
  {
    Job job(directory / "host-1");
    job.schemas().at(100).push("ncclAllGather").payload(4, {kCommunicator, 64}).launch(51);
  }
  build();
  EXPECT_EQ(rows("SELECT operation, bytes, start_ns, joined_by FROM collective"), (Rows{"AllGather|64||"}));
}

TEST_F(Collectives, NonsenseInTheLogIsSurvived) {
  {
    Job job(directory / "host-1");
    job.schemas().at(10).pop().payload(4, {1, 2}).launch(7).launch(7);
    for (int i = 0; i < 40; i++)
      job.push(i % 2 ? "ncclAllGather" : "ncclCommInitRank").payload(4, {1, 2}).launch(7);
    for (int i = 0; i < 60; i++)
      job.pop().payload(11, {uint64_t(i), 3});
    job.kernel(7, 0, 5, kAllGather)
        .kernel(7, 50, 60, "nccl")
        .kernel(7, 50, 60, "ncclDevKernel_")
        .kernel(7, 70, 80, kAllGather);
    job.at(90).push("").payload(4, {}).push("nccl").push("ncclGroupEnd").pop().pop().pop();
    job.thread().append(sl_event_nccl_call{0, 0, UINT64_MAX, 1, 1, 0, 0, 0, 0, 0, 0, 1});
  }
  build();
  EXPECT_EQ(rows("SELECT count(*) > 0, count(*) = count(DISTINCT id) FROM collective"), (Rows{"1|1"}));
}

} // namespace
