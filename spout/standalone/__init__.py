"""A topic as a Kestrel queue, without Spark: clients open records, and confirm, abort or fail them.

==================  ====================================================================================
store               which items are waiting, which are open and with whom, how many to have ready; pure
item_records        the records behind them, and what was settled and is not published yet; pure
queues              these together, for all inputs of a group; pure
read_ahead          reads an input; what it has read is what may be planned
service             one step: verdicts in, records planned and added to the queues; what was settled goes out
engine              the service with its two threads, the lock and the clock
items, client       what a user holds
kafka_spout         the group: Storm's spout, and where clients come from
==================  ====================================================================================

Planning, the pending window and the way to the ackers are those of the Spark
source (``spout.planning_process.planner``, ``spout.publishing.publish``).
"""
