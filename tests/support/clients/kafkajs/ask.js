// Asks a cluster about its groups with kafkajs, and prints the answers as JSON: ask.js HOST:PORT GROUP...
import kafkajs from "kafkajs";

const { AssignerProtocol, Kafka, logLevel } = kafkajs;
const [bootstrap, ...groups] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 2 } });
const admin = kafka.admin();

const by = (name) => (a, b) => (a[name] < b[name] ? -1 : 1);

function assigned(member, protocolType) {
  if (protocolType !== "consumer" || !member.memberAssignment.length) return [];
  const { assignment } = AssignerProtocol.MemberAssignment.decode(member.memberAssignment);
  return Object.entries(assignment).flatMap(([topic, numbers]) => numbers.map((one) => `${topic}:${one}`)).sort();
}

function described(group) {
  const members = group.members.map((one) => ({
    id: one.memberId,
    client: one.clientId,
    host: one.clientHost,
    assigned: assigned(one, group.protocolType),
  }));
  const { groupId, state, protocol, protocolType, errorCode } = group;
  return { group: groupId, state, protocol, type: protocolType, errorCode, members: members.sort(by("id")) };
}

await admin.connect();
const answers = { listed: (await admin.listGroups()).groups.sort(by("groupId")), offsets: {}, ends: {} };
answers.described = (await admin.describeGroups(groups)).groups.map(described).sort(by("group"));
for (const topic of (await admin.listTopics()).sort()) {
  if (!topic.startsWith("__")) {
    answers.ends[topic] = (await admin.fetchTopicOffsets(topic)).sort(by("partition"));
  }
}
for (const groupId of groups.filter(Boolean)) {  // it refuses the empty one itself
  const fetched = await admin.fetchOffsets({ groupId });
  answers.offsets[groupId] = fetched
    .map((one) => ({ ...one, partitions: one.partitions.sort(by("partition")) }))
    .sort(by("topic"));
}
answers.refused = await admin.deleteGroups(["nope"]).then(
  () => "",
  (error) => error.groups?.map((one) => one.error.type).join() ?? String(error),
);
await admin.disconnect();
console.log(JSON.stringify(answers));
