"""A small blocking client of Kafka's protocol: what the command line and Spark's tasks speak to brokers with.

One socket a broker, the generated messages, no thread and no event loop of its own, and light to import: a command that
asks one question loads only the messages of that question.

    errors                  what goes wrong, in words
    settings, security      Kafka's client settings; TLS and SASL
    connection              frames, versions, authentication, several requests on their way
    cluster                 who is who, where a request goes, what is worth repeating
    coordinators, offsets, group_offsets, transactions
    admin                   what administrators ask and order, as functions of an `Admin`

It must never import what a node is made of: whatever speaks the protocol is a broker to it.
"""
