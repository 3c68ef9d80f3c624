// Asks with many clients of kafkajs at once, as asker.py describes.
import fs from "node:fs";
import readline from "node:readline";
import kafkajs from "kafkajs";

const { ConfigResourceTypes, Kafka, logLevel } = kafkajs;
const NAMED = ["offsetlake.read.until", "offsetlake.log.ends.sampled.at"];
const clients = new Map();

async function open(bootstrap, ca, username, password) {
  const signed = ca && {
    ssl: { ca: fs.readFileSync(ca, "utf-8") },
    sasl: { mechanism: "scram-sha-256", username, password },
  };
  const patient = { connectionTimeout: 30000, authenticationTimeout: 30000 };  // on a busy machine
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, ...patient, ...signed });
  const admin = kafka.admin();
  await admin.connect();
  return admin;
}

function summary(name, numbers) {
  const all = numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [0, 0];
  return `${name}=${numbers.length}:${all.join(":")}`;
}

const questions = {
  open: async () => [],
  offsets: (admin, groups) => Promise.all(groups.map(async (groupId) => {
    try {
      const topics = await admin.fetchOffsets({ groupId });
      return summary(groupId, topics.flatMap((one) => one.partitions.map((at) => Number(at.offset))));
    } catch (error) {
      if (error.type !== "GROUP_AUTHORIZATION_FAILED") throw error;
      return `${groupId}=denied`;
    }
  })),
  members: async (admin, groups) => (await admin.describeGroups(groups)).groups.map(
    (one) => summary(one.groupId, one.members.map((member) => Number(member.memberId.slice(2)))),
  ),
  groups: async (admin) => {
    const names = (await admin.listGroups()).groups.map((one) => one.groupId);
    const added = names.filter((name) => name.startsWith("new-")).map((name) => Number(name.slice(4)));
    return [`groups=${names.length - added.length}:0:0`, summary("new", added)];
  },
  ends: (admin, topics) => Promise.all(topics.map(async (topic) => summary(
    topic, (await admin.fetchTopicOffsets(topic)).map((one) => Number(one.high)),
  ))),
};

async function answer(number, question, words) {
  if (question === "open") clients.set(number, open(...words));
  const admin = await clients.get(number);
  if (question === "close") {
    clients.delete(number);
    return admin.disconnect();
  }
  const shown = await questions[question](admin, words);
  const asked = { resources: [{ type: ConfigResourceTypes.BROKER, name: "1" }], includeSynonyms: false };
  const entries = (await admin.describeConfigs(asked)).resources[0].configEntries;
  const values = NAMED.map((name) => entries.find((one) => one.configName === name).configValue || "-");
  console.log([number, ...values, ...shown].join(" "));
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [number, question, ...words] = line.split(" ");
  answer(number, question, words).catch((error) => {
    console.log(`${number} error ${String(error).replaceAll("\n", " ")}`);
  });
}
process.exit(0);
